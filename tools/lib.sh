# Read by the scripts beside it: where things are, and who asked.
# shellcheck shell=bash
set -euo pipefail
export LC_ALL=C.UTF-8
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
spx=$build/src/spx/spx

if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; else bold='' plain=''; fi
say() { printf '%s== %s%s\n' "$bold" "$*" "$plain"; }
die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}
need_root() {
    [ "$(id -u)" = 0 ] || die "only root may do this: sudo make $1"
}

# The person behind sudo: what is built and written in the tree is his.
caller=${SUDO_USER:-$(id -un)}
[ "$(id -u)" = 0 ] || caller=$(id -un)
caller_home=$(getent passwd "$caller" | cut -d: -f6)

# Runs a command as that person, with an environment of his own.
as_caller() {
    if [ "$(id -u)" = 0 ] && [ "$caller" != root ]; then
        runuser -u "$caller" -- env -u SUDO_USER HOME="$caller_home" USER="$caller" LOGNAME="$caller" "$@"
    else
        "$@"
    fi
}

# The caller's own AWS CLI: on the path, or where his login shell finds it (sudo shortens the path).
find_aws() {
    command -v aws || as_caller bash -lc 'command -v aws' 2>/dev/null
}

# A variable of the person's environment: sudo hands on little of it, so it is read from the nearest sudo above this process.
caller_env() {
    local pid=$PPID stat
    if [ -n "${!1:-}" ]; then
        printf '%s\n' "${!1}"
        return
    fi
    while [ "${SUDO_USER:-}" ] && [ "$pid" -gt 1 ] && stat=$(cat "/proc/$pid/stat" 2>/dev/null); do
        if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = sudo ]; then
            tr '\0' '\n' <"/proc/$pid/environ" | sed -n "s/^$1=//p" | head -n 1
            return
        fi
        stat=${stat##*) ? }
        pid=${stat%% *}
    done
}

# Who listens on a TCP port, when it is no service of ours: "nginx (pid 12)".
listener() {
    local inode pid name
    inode=$(awk -v p=":$(printf %04X "$1")" '$4 == "0A" && substr($2, length($2) - 4) == p {print $10; exit}' /proc/net/tcp /proc/net/tcp6)
    [ -n "$inode" ] || return 0
    pid=$(find /proc/[0-9]*/fd -lname "socket:\\[$inode\\]" 2>/dev/null | head -n 1 | cut -d/ -f3)
    name=$(cat "/proc/$pid/comm" 2>/dev/null || true)
    case $name in spx-*) ;; *) echo "${name:-somebody} (pid ${pid:-unknown})" ;; esac
}

# Runs quietly; shows what was said only when it fails.
quietly() {
    local log
    log=$(mktemp)
    if "$@" >"$log" 2>&1; then
        rm -f "$log"
    else
        local status=$?
        tail -n 60 "$log" >&2
        rm -f "$log"
        return $status
    fi
}

# Services and guests run under users of their own, who see nothing below a private home (Debian 13 makes homes 0700).
everybody_reaches() {
    setpriv --reuid 65534 --regid 65534 --clear-groups test -x "$1"
}

# Where the tests are built: in the tree, or beside it when the users of the services cannot go there. As root or as the caller.
check_folder() {
    local dir=$root/build-check
    if [ "$(id -u)" = 0 ] && ! everybody_reaches "$root"; then
        dir=/var/tmp/spinifex-check-$caller
    fi
    as_caller mkdir -p -m 755 "$dir" || return 1
    # In a folder for everybody, a stranger may have been there first.
    [ ! -L "$dir" ] && [ "$(stat -c %U "$dir")" = "$caller" ] || die "$dir is not a folder of $caller"
    echo "$dir"
}
