#!/bin/sh
# Starts three gateways on one store, and nginx in front of them, on one machine (docs/scaling.md). On several machines,
# run one gateway on each, and name their addresses in nginx's configuration.
#
#   COREGW_STORE='postgresql://coregw:PASSWORD@db/coregw' COREGW_BUCKET='s3://chunks?region=eu-central-1' ./gateways.sh
#
# The bucket's credentials are in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. SIGTERM or SIGINT stops all of them.
set -eu

: "${COREGW_STORE:?is the address of the PostgreSQL database}"
: "${COREGW_BUCKET:=none}"
: "${COREGW:=coregw}"
: "${DATA:=/var/lib/coregw}"                       # temporary files, names of control sockets; a folder for each gateway
: "${PORTS:=8081 8082 8083}"                       # those of nginx's configuration
: "${PROXY:=nginx -c /etc/nginx/nginx.conf -g 'daemon off;'}" # its block "http" includes deploy/nginx/gateways.conf
export COREGW_STORE COREGW_BUCKET

processes=
stop() {
    trap - EXIT INT TERM
    # shellcheck disable=SC2086 # one argument for each process
    kill $processes 2>/dev/null || true
    wait
}
trap stop EXIT
trap 'exit 0' INT TERM

for port in $PORTS; do
    "$COREGW" serve --data "$DATA/$port" --port "$port" &
    processes="$processes $!"
done
for port in $PORTS; do
    until curl --silent --fail --output /dev/null "http://127.0.0.1:$port/readyz"; do sleep 0.2; done
done
sh -c "exec $PROXY" &
processes="$processes $!"
wait $! # if the proxy ends, so do the gateways; if a gateway ends, the others go on
