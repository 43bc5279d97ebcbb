#!/usr/bin/env bash
# Hosts made of namespaces: each has its own network, address, name, processes, /dev/shm, /tmp, /run, ~/.ssh, ~/.cache
# and ssh daemon. The rest of the file system is common to all, as over NFS. All of them live inside the namespaces of
# one process, `serve`. With it they end, mounts and links included, and the machine's own network is not touched.
#   hosts.sh serve a b [c d]       in namespaces of its own: builds them, prints "ready", and ends with its standard input
#   hosts.sh in HOST FOLDER WORDS  inside the namespaces of serve: runs a command there, in that folder
#   hosts.sh link HOST up|down     plugs in its cable, or pulls it
#   hosts.sh rate HOST MBIT [KB]   holds its link to so many Mbit/s, each way, but for so many KB after a rest (64)
#   hosts.sh late HOST MS LOSS-%   each way so late, with such losses, by relay.py: prints "ready", ends when it is killed
#   hosts.sh port HOST             prints the name of its port at the switch
set -Eeuo pipefail
STATE=/run/malt-hosts NET=10.99.7 SELF=$(readlink -f "$0")
pid() { cat "$STATE/$1.pid"; }
port() { cat "$STATE/$1.port"; }
inside() {  # HOST FOLDER COMMAND...
    exec nsenter -t "$(pid "$1")" -n -u -i -m -p sh -c 'cd "$0" && exec "$@"' "${@:2}"
}
serve() {
    local n=0 host number
    mount --make-rprivate /; mount -t tmpfs -o mode=755 tmpfs /run; mkdir "$STATE" "$STATE/ssh"
    ssh-keygen -q -t ed25519 -N '' -f "$STATE/ssh/id_ed25519"
    cp "$STATE/ssh/id_ed25519.pub" "$STATE/ssh/authorized_keys"
    ip link add br0 type bridge; ip link set br0 up
    echo '127.0.0.1 localhost' >"$STATE/hosts"
    for host; do
        n=$((n + 1)); echo "$NET.$n $host" >>"$STATE/hosts"; echo "p$n" >"$STATE/$host.port"
        ssh-keygen -q -t ed25519 -N '' -f "$STATE/$host.key"
        echo "$host,$NET.$n $(cut -d' ' -f1,2 "$STATE/$host.key.pub")" >>"$STATE/ssh/known_hosts"
    done
    for host; do
        number=$(port "$host")
        setsid unshare --fork --kill-child --net --uts --ipc --mount --pid --mount-proc "$SELF" boot "$host" \
            "$NET.${number#p}" </dev/null >>"$STATE/$host.log" 2>&1 &
        until pgrep -P $! >"$STATE/$host.pid"; do kill -0 $! || { cat "$STATE/$host.log" >&2; return 1; }; sleep 0.02; done
        ip link add "$number" type veth peer name eth0 netns "$(pid "$host")"
        ip link set "$number" master br0 up
        for n in {1..100}; do
            (inside "$host" / ssh -oBatchMode=yes "$host" true) 2>"$STATE/why" && break
            [ "$n" != 100 ] || { cat "$STATE/why" "$STATE/$host.log" >&2; return 1; }
            sleep 0.1
        done
    done
    echo ready
    cat >/dev/null
}
rate() {  # HOST MBIT [KB]
    local shape="tbf rate $2mbit burst ${3:-64}kb latency 100ms"
    tc qdisc replace dev "$(port "$1")" root $shape
    inside "$1" / tc qdisc replace dev eth0 root $shape
}
late() {  # HOST MS LOSS-%
    local near far=s-$1
    near=$(port "$1")
    (inside "$1" / ip link set eth0 gso_max_segs 1)  # what is lost is a packet, not a train of them
    ip link set "$near" nomaster; ip link add "$far" type veth peer name "t-$1"
    ip link set "$far" up; ip link set "t-$1" master br0 up
    exec python3 "${SELF%/*}/relay.py" "$near" "$far" "$2" "$3"
}
boot() {  # NAME ADDRESS: the first process of a host
    local keep=/mnt control
    hostname "$1"; mount --make-rprivate /; mount -t tmpfs -o size=1g tmpfs /dev/shm; mount -t tmpfs tmpfs $keep
    mkdir -p "$keep$STATE"; mount --bind "$STATE" "$keep$STATE"
    mkdir -p ~/.ssh ~/.cache; mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs ~/.ssh; mount -t tmpfs tmpfs ~/.cache
    mount -t tmpfs -o mode=1777 tmpfs /tmp; mkdir /run/sshd; mount --bind "$keep$STATE/hosts" /etc/hosts
    cp "$keep$STATE"/ssh/* ~/.ssh/; cp "$keep$STATE/$1.key" /run/key
    umount -R $keep
    until ip link set eth0 up 2>/dev/null; do sleep 0.02; done
    for control in cubic reno; do echo $control >/proc/sys/net/ipv4/tcp_congestion_control && break; done 2>/dev/null
    ip link set lo up; ip address add "$2/24" dev eth0
    env -i PATH=/usr/local/bin:/usr/bin:/bin /usr/sbin/sshd -f /dev/null -D -e -o HostKey=/run/key -o PidFile=none \
        -o StrictModes=no -o MaxStartups=100 &
    echo $! >/run/sshd.pid
    while :; do wait -n || sleep 0.2 || true; done  # and take the status of orphans
}
case ${1:-} in
    serve | boot | rate | late) "$@" ;;
    in) inside "${@:2}" ;;
    link) ip link set "$(port "$2")" "$3" ;;
    port) port "$2" ;;
    *) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
