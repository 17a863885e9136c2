/* Any bytes as a question from a guest and as an answer from an upstream: nothing is read or
 * written past an end, answers belong to their question, limits hold. */
#include "vpcd/dns.h"
#include "vpcd/facts_sample.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_header_ok(const uint8_t *out, const uint8_t *in)
{
    return memcmp(out, in, 2) == 0 && (out[2] & 0x80);
}

static void as_question(struct str msg, const struct facts *f)
{
    static uint8_t out[DNS_MSG_MAX + 1];
    const uint8_t *in = (const uint8_t *)msg.p;
    struct dns_query q;
    int r = dns_parse_query(msg, &q);
    assert(strlen(q.name) < sizeof(q.name));
    if (r < 0) {
        return;
    }
    assert(q.question_end <= msg.n);
    static const size_t limits[] = {0, 11, 12, 40, DNS_UDP_MIN, DNS_MSG_MAX};
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        size_t n = dns_make_error(msg, &q, r ? r : DNS_SERVFAIL, out, limits[i]);
        assert(n <= limits[i] && (n == 0 || is_header_ok(out, in)));
        if (r) {
            continue;
        }
        n = dns_answer_local(msg, &q, f, out, limits[i]);
        assert(n <= limits[i] && (n == 0 || is_header_ok(out, in)));
        struct dns_query back;
        n = dns_make_upstream(msg, &q, 0x4242, out, limits[i]);
        assert(n <= limits[i]);
        /* what we ask is a question that we would understand ourselves */
        assert(n == 0 || (!dns_parse_query(str_n((const char *)out, n), &back) &&
                          !strcmp(back.name, q.name) && back.id == 0x4242));
    }
}

static void as_answer(struct str msg)
{
    static uint8_t out[DNS_MSG_MAX + 1];
    static const uint8_t asked[] = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03www\x07"
                                   "example\x03"
                                   "com\x00\x00\x01\x00\x01";
    (void)dns_is_answer_to(msg, str_n((const char *)asked, sizeof(asked) - 1));
    (void)dns_is_truncated(msg);
    struct dns_query q = {.id = 0x9999, .udp_size = 512};
    for (int has_edns = 0; has_edns < 2; has_edns++) {
        q.has_edns = has_edns;
        size_t n = dns_make_relayed(msg, &q, 512, out);
        assert(n <= 512 && n <= msg.n && (n == 0 || (out[0] == 0x99 && out[1] == 0x99)));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct facts *f;
    f = f ? f : facts_sample();
    if (size <= DNS_MSG_MAX) {
        as_question(str_n((const char *)data, size), f);
        as_answer(str_n((const char *)data, size));
    }
    return 0;
}
