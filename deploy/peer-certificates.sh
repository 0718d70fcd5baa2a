#!/bin/sh
# Certificates for the traffic between instances: one authority, one pair of files for each host.
#
#   sh deploy/peer-certificates.sh DIRECTORY HOST...
#   sh deploy/peer-certificates.sh certs 10.0.0.1 10.0.0.2 db3.example.org
#
# Makes DIRECTORY/ca.crt and ca.key, if they are not there, and HOST.crt and HOST.key for each
# host, again if they are there. Give each instance its own pair and ca.crt; keep ca.key elsewhere.
set -eu
[ $# -ge 2 ] || { sed -n '4,5s/^# *//p' "$0" >&2; exit 2; }
days=${DAYS:-365}
directory=$1
shift
umask 077
mkdir -p "$directory"
cd "$directory"
if [ ! -f ca.crt ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -sha256 -nodes -days 3650 \
        -subj "/CN=Cairn peers" -keyout ca.key -out ca.crt 2>/dev/null
fi
for host in "$@"; do
    case $host in
        *:* | *[!0-9.]*) kind=DNS ;;
        *) kind=IP ;;
    esac
    case $host in *:*) kind=IP ;; esac
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -sha256 -nodes -subj "/CN=$host" \
        -keyout "$host.key.new" -out "$host.csr" 2>/dev/null
    printf 'subjectAltName=%s:%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$kind" "$host" >"$host.ext"
    openssl x509 -req -in "$host.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -sha256 -days "$days" \
        -extfile "$host.ext" -out "$host.crt.new" 2>/dev/null
    # The key first: an instance that looks in between finds a pair that does not fit, and waits.
    mv "$host.key.new" "$host.key"
    mv "$host.crt.new" "$host.crt"
    rm -f "$host.csr" "$host.ext"
    echo "$directory/$host.crt, $directory/$host.key"
done
