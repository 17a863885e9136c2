#!/bin/bash
# Undoes "make up" wholly: guests, services, networks, state, volumes, objects, the profile. Lists what goes and asks; --yes asks nothing.
#   sudo make purge          sudo tools/purge.sh --yes [--packages]
# --packages: the packages too that "make up" installed (and nobody else needs).
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_root purge
config=${SPX_CONFIG:-/etc/spinifex/spinifex.toml}
installed=/var/cache/spinifex/packages
yes='' packages=''
for a in "$@"; do
    case $a in
    --yes) yes=1 ;;
    --packages) packages=1 ;;
    *) die "unknown argument: $a" ;;
    esac
done
if [ ! -x "$spx" ] && [ -S /run/spinifex/state.sock ]; then
    die 'services may be running, and there is no spx here that could stop them: make build'
fi
folders=("$(dirname "$config")" /var/cache/spinifex /root/.cache/spinifex)
if [ -f "$config" ] && [ -x "$spx" ]; then
    folders+=("$("$spx" config get data_dir)" "$("$spx" config get run_dir)")
else
    folders+=(/var/lib/spinifex /run/spinifex)
fi
[ "$(dirname "$config")" = /etc/spinifex ] || folders=("${folders[@]:1}") # a configuration among other things: only the file
mapfile -t extra < <([ ! -f "$installed" ] || sort -u "$installed")

echo 'This goes, for ever:'
for f in "${folders[@]}"; do
    [ ! -e "$f" ] || printf '  %-28s %s\n' "$f" "$(du -sh "$f" 2>/dev/null | cut -f1)"
done
if [ -x "$spx" ] && [ -f "$config" ]; then
    "$spx" get volumes 2>/dev/null | sed 's/^/  /' || true
fi
echo "  the profile [spinifex] in the AWS files of $caller"
[ ! -f "$caller_home/.ssh/spinifex_ed25519" ] || echo "  $caller_home/.ssh/spinifex_ed25519, made for the first guest"
if [ "${#extra[@]}" -gt 0 ]; then
    [ "$packages" ] && echo "  packages: ${extra[*]}" || echo "What stays: packages that were installed for it (--packages removes them: ${#extra[@]})"
fi
if [ ! "$yes" ]; then
    [ -t 0 ] || die 'nobody is there to ask: --yes'
    read -r -p 'Type "purge" to go on: ' word
    [ "$word" = purge ] || die 'nothing was changed'
fi
if [ -x "$spx" ]; then
    [ ! -f "$config" ] || "$spx" down
    "$spx" profile remove
fi
for f in "${folders[@]}"; do
    [ -d "$f" ] || continue
    find "$f" -xdev -mindepth 1 -delete || true # what is mounted there, or is a mount itself, stays as an empty folder
    rmdir "$f" 2>/dev/null || true
done
[ ! -f "$config" ] || rm -f "$config"
rm -f "$caller_home/.ssh/spinifex_ed25519" "$caller_home/.ssh/spinifex_ed25519.pub"
if [ "$packages" ] && [ "${#extra[@]}" -gt 0 ]; then
    DEBIAN_FRONTEND=noninteractive quietly apt-get purge -y --autoremove "${extra[@]}"
fi
say 'gone; the source tree and its build folders are still here'
