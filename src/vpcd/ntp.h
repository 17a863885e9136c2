/* ntp.h — one NTP request in, one answer out (RFC 5905, client and server modes only).
 * Not here: the clock itself: the host keeps it; its state is passed in.
 * Threads:  no state.
 * Memory:   the answer goes into a buffer of the caller. Never longer than the request: no
 *           amplification.
 * Errors:   false for everything that deserves no answer. */
#pragma once
#include "base/str.h"
#include <stdint.h>

#define NTP_SIZE 48

struct ntp_clock {
    uint64_t received_ns,
        now_ns;           /* wall clock: arrival of the request, and as late as possible */
    bool is_synchronised; /* the host follows a time source */
    uint32_t max_error_us;
};
bool ntp_answer(struct str packet, const struct ntp_clock *c, uint8_t out[NTP_SIZE]);
