#include "vpcd/ntp.h"

#include "base/macro.h"
#include "base/time.h"

#include <string.h>

#define UNIX_EPOCH_IN_NTP UINT64_C(2208988800)

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        p[i] = (uint8_t)(v >> (24 - 8 * i));
    }
}

static void put_time(uint8_t *p, uint64_t wall_ns)
{
    put32(p,
          (uint32_t)(wall_ns / NS_PER_S + UNIX_EPOCH_IN_NTP)); /* eras wrap, as they should */
    put32(p + 4, (uint32_t)(((wall_ns % NS_PER_S) << 32) / NS_PER_S));
}

bool ntp_answer(struct str packet, const struct ntp_clock *c, uint8_t out[NTP_SIZE])
{
    if (packet.n < NTP_SIZE) {
        return false;
    }
    const uint8_t *in = (const uint8_t *)packet.p;
    unsigned version = (in[0] >> 3) & 7, mode = in[0] & 7;
    if (mode != 3 || version < 1 || version > 4) {
        return false;
    }
    memset(out, 0, NTP_SIZE);
    out[0] = (uint8_t)(version << 3 | 4); /* leap 0, mode 4 */
    /* A host without a source of its own is still the best clock its guests can have: what
     * chrony calls "local stratum 10". */
    out[1] = c->is_synchronised ? 3 : 10;
    out[2] = in[2];
    out[3] = (uint8_t)-20; /* precision: about a microsecond */
    put32(out + 8, (uint32_t)MIN(((uint64_t)c->max_error_us << 16) / 1000000, UINT32_MAX));
    memcpy(out + 12, c->is_synchronised ? "SPXH" : "LOCL", 4);
    put_time(out + 16, c->received_ns - c->received_ns % NS_PER_S);
    memcpy(out + 24, in + 40, 8);
    put_time(out + 32, c->received_ns);
    put_time(out + 40, c->now_ns);
    return true;
}
