/* time.h — clocks and the time formats of AWS.
 * Not here: timers (loop/).
 * Threads:  no state.
 * Memory:   formats into buffers of the caller.
 * Errors:   parsers answer -EINVAL. Time is uint64_t nanoseconds: monotonic inside, wall clock
 *           (since 1970) at the edges. */
#pragma once
#include "base/macro.h"
#include "base/str.h"
#include <stdint.h>

#define NS_PER_S  UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)

uint64_t time_mono_ns(void);
uint64_t time_wall_ns(void);

#define TIME_ISO_SIZE 32
/* "2026-11-30T14:49:10.000Z" (EC2's form), milliseconds always shown. Returns buf. */
const char *time_iso_ms(uint64_t wall_ns, char buf[TIME_ISO_SIZE]);
/* "2026-11-30T14:49:10Z" */
const char *time_iso_s(uint64_t wall_ns, char buf[TIME_ISO_SIZE]);
/* "20261130T144910Z", the X-Amz-Date form. */
const char *time_basic(uint64_t wall_ns, char buf[TIME_ISO_SIZE]);
/* "Mon, 30 Nov 2026 14:49:10 GMT" (RFC 9110 §5.6.7); needs 32 bytes. */
const char *time_http(uint64_t wall_ns, char buf[TIME_ISO_SIZE]);

/* ISO 8601 with 'Z' or an offset, optional fraction; date alone means midnight UTC. */
MUST_CHECK int time_parse_iso(struct str s, uint64_t *ret_wall_ns);
/* "20261130T144910Z" */
MUST_CHECK int time_parse_basic(struct str s, uint64_t *ret_wall_ns);
/* "Mon, 30 Nov 2026 14:49:10 GMT" */
MUST_CHECK int time_parse_http(struct str s, uint64_t *ret_wall_ns);
