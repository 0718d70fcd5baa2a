"""A small smart client, built from `docs/reference/topology-protocol.md` (see the tutorial)."""

import json
import os
import select
import socket

import mmh3
import msgspec

from cairn.pgwire.client import PgClient


class SmallClient:
    def __init__(self, host, port, user, password=None):
        self.login = {"user": user, "password": password, "random_bytes": os.urandom}
        self.masters, self.addresses, self.owners = {}, {}, {}  # what the events tell
        self.links, self.keys = {}, {}
        self.service = self.connect((host, port), {"smart_connector": "0.1"})

    def connect(self, address, params):
        pg, sock = PgClient(**self.login, params=params), socket.create_connection(address, 5)
        pg.on_notice.append(self.hear)
        self.talk((pg, sock), pg.connect())
        return pg, sock

    def talk(self, link, outgoing):
        pg, sock = link
        while outgoing or not pg.is_idle:
            sock.sendall(outgoing)
            data = sock.recv(1 << 16)
            if not data:
                raise pg.connection_lost()
            outgoing = pg.receive(data)
        return pg.take_results()

    def hear(self, notice):
        match json.loads(notice.message):
            case {"map": "replicaset", "replicaset_uuid": uuid, "current_master_uuid": master}:
                self.masters[uuid] = master
            case {"map": "instance", "instance_uuid": uuid, "address": address}:
                self.addresses[uuid] = address
            case {"map": "bucket", "tier": tier, "bucket_id": ids, "current_replicaset_uuid": uuid}:
                for bucket in range(ids["start"], ids["end"] + 1):
                    self.owners[tier, bucket] = uuid
            case {"query": sql, "tier": tier, "dk_meta": parts}:
                self.keys[sql] = tier, [number - 1 for number, _ in parts]

    def execute(self, sql, *params):
        while select.select([self.service[1]], [], [], 0)[0]:  # events that came meanwhile
            self.service[0].receive(self.service[1].recv(1 << 16))
        if sql not in self.keys:  # any instance may prepare it and tell the key's parameters
            self.run(next(iter(self.addresses.values())), sql, None)
        tier, parts = self.keys[sql]
        address = next(iter(self.addresses.values()))
        if parts:
            values = [params[at] for at in parts]
            data = b"".join(
                v.encode() if type(v) is str else msgspec.msgpack.encode(v) for v in values
            )
            bucket = mmh3.hash(data, 13, signed=False) % self.bucket_count(tier) + 1
            address = self.addresses[self.masters[self.owners[tier, bucket]]]
        return self.run(address, sql, params)

    def bucket_count(self, tier):
        return max(bucket for name, bucket in self.owners if name == tier)

    def run(self, address, sql, params):
        if address not in self.links:
            host, port = address.split(":")
            wanted = {"picodata_stmt_invalidation": "true"}
            self.links[address] = self.connect((host, int(port)), wanted)
        link = self.links[address]
        if sql not in link[0].statements:
            self.talk(link, link[0].prepare(sql, sql))  # the text serves as the statement's name
        if params is None:
            return []
        return self.talk(link, link[0].execute_prepared(sql, params))[-1].rows
