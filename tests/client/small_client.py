"""A small smart client, built from `docs/reference/topology-protocol.md` (see the tutorial)."""

import json
import os
import select
import socket

import mmh3
import msgspec

from cairn.pgwire.client.client import PgClient


class SmallClient:
    def __init__(self, address, user, password=None):
        self.account = {"user": user, "password": password, "random_bytes": os.urandom}
        self.masters, self.told, self.online = {}, {}, {}
        self.owners, self.keys, self.links = {}, {}, {}
        self.service = self.connect(address, smart_connector="0.1")

    def connect(self, address, **asked_for):
        link = PgClient(**self.account, params=asked_for)
        link.on_notice.append(self.hear)
        link.socket = socket.create_connection(address.split(":"), 5)
        self.talk(link, link.connect())
        return link

    def talk(self, link, outgoing):
        while outgoing or not link.is_idle:
            link.socket.sendall(outgoing)
            outgoing = link.receive(link.socket.recv(1 << 16) or exit("the server hung up"))
        return link.take_results()

    def hear(self, notice):
        match notice.message.startswith("{") and json.loads(notice.message):  # or it is for people
            case {"map": "replicaset", "replicaset_uuid": uuid, "current_master_uuid": master}:
                self.masters[uuid] = master
            case {"map": "instance", "instance_uuid": uuid, **told}:
                self.told[uuid] = told = self.told.get(uuid, {}) | told  # only what changed is told
                is_there = told["op"] == "replace" and told["current_state"] == "Online"
                self.online[uuid] = told["address"] if is_there else None
                self.links.pop(told["address"], None)  # it may be of an earlier life
            case {"map": "bucket", "tier": tier, "bucket_id": ids, "current_replicaset_uuid": uuid}:
                buckets = range(ids["start"], ids["end"] + 1)
                self.owners.setdefault(tier, {}).update(dict.fromkeys(buckets, uuid))
            case {"query": sql, "tier": tier, "dk_meta": parts}:
                self.keys[sql] = tier, [number - 1 for number, _ in parts]

    def prepared(self, address, sql):
        if address not in self.links:
            self.links[address] = self.connect(address, picodata_stmt_invalidation="true")
        if sql not in self.links[address].statements:  # the text serves as the statement's name
            self.talk(self.links[address], self.links[address].prepare(sql, sql))
        return self.links[address]

    def execute(self, sql, *params):
        while select.select([self.service.socket], [], [], 0)[0]:  # events that came meanwhile
            self.service.receive(self.service.socket.recv(1 << 16))
        link = self.prepared(next(filter(None, self.online.values())), sql)  # any tells the key
        tier, parts = self.keys[sql]
        if parts:
            key = b"".join(encoded(params[at]) for at in parts)
            bucket = mmh3.hash(key, 13, signed=False) % len(self.owners[tier]) + 1
            master = self.online.get(self.masters[self.owners[tier][bucket]])
            link = self.prepared(master, sql) if master else link  # anyone passes it on
        return self.talk(link, link.execute_prepared(sql, params))[-1].rows


def encoded(value):
    return value.encode() if isinstance(value, str) else msgspec.msgpack.encode(value)
