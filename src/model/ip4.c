#include "base/num.h"
#include "model/network.h"
#include <errno.h>

int ip4_parse(struct str s, uint32_t *ret)
{
    uint32_t ip = 0;
    struct str rest = s, part = STR_NONE;
    if (!s.p) {
        return -EINVAL;
    }
    for (unsigned i = 0; i < 4; i++) {
        uint64_t v = 0;
        /* "010" is refused: some programs read it as octal. */
        if (!str_next(&rest, '.', &part) || part.n > 3 || (part.n > 1 && part.p[0] == '0') ||
            num_u64(part, 255, &v) < 0) {
            return -EINVAL;
        }
        ip = ip << 8 | (uint32_t)v;
    }
    if (rest.p) {
        return -EINVAL;
    }
    *ret = ip;
    return 0;
}

struct str ip4_fmt(struct arena *a, uint32_t ip)
{
    return arena_fmt(a, "%u.%u.%u.%u", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
}

int cidr4_parse(struct str s, uint32_t *ret_net, unsigned *ret_len)
{
    struct str ip = s.p ? str_cut(s, '/') : STR_NONE;
    uint32_t net = 0;
    uint64_t len = 0;
    if (ip.n == s.n || ip4_parse(ip, &net) < 0) {
        return -EINVAL;
    }
    struct str bits = str_skip(s, ip.n + 1);
    if (bits.n > 2 || (bits.n > 1 && bits.p[0] == '0') || num_u64(bits, 32, &len) < 0) {
        return -EINVAL;
    }
    uint32_t host = len == 0 ? UINT32_MAX : len == 32 ? 0 : UINT32_MAX >> len;
    if (net & host) {
        return -EINVAL;
    }
    *ret_net = net;
    *ret_len = (unsigned)len;
    return 0;
}
