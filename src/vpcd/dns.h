/* dns.h — DNS messages: a strict reader of questions, answers from our own zones, and the check
 * and trimming of what a forwarder got back (RFC 1035, 6891). Pure.
 * Not here: sockets, the table of questions in flight (resp_dns.c).
 * Threads:  no state.
 * Memory:   messages are written into buffers of the caller.
 * Errors:   see each call. Messages are never trusted: every offset is checked. */
#pragma once
#include "base/macro.h"
#include "model/network.h"
#include "vpcd/facts.h"

#define DNS_UDP_MIN 512u /* without EDNS */
#define DNS_UDP_MAX \
    1232u /* what we send at most over UDP to a guest that says it takes more \
                                */
#define DNS_UPSTREAM_MAX 4096u /* what we let an upstream send */
#define DNS_MSG_MAX      65535u
#define DNS_NAME_MAX     255u

enum {
    DNS_NOERROR = 0,
    DNS_FORMERR = 1,
    DNS_SERVFAIL = 2,
    DNS_NXDOMAIN = 3,
    DNS_NOTIMP = 4,
    DNS_REFUSED = 5
};
enum { DNS_A = 1, DNS_SOA = 6, DNS_PTR = 12, DNS_AAAA = 28, DNS_OPT = 41, DNS_ANY = 255 };

struct dns_query {
    uint16_t id, type, class_;
    bool is_recursion_desired, is_checking_disabled;
    bool has_edns, is_dnssec_ok;
    uint16_t udp_size;           /* how much the client takes over UDP */
    char name[DNS_NAME_MAX + 1]; /* lower case, dots, no final dot; "" = the root. Bytes that
                                    are no host name are kept as '?' */
    size_t question_end;         /* offset after the question */
};

/* 0 = a query; > 0 = an RCODE to answer with (the header and what could be read are in *q);
 * -EINVAL = drop it. */
MUST_CHECK int dns_parse_query(struct str msg, struct dns_query *q);

/* Header and question of 'msg' with an RCODE and no records. Returns the size, 0 when it does
 * not fit. */
size_t dns_make_error(struct str msg, const struct dns_query *q, int rcode, uint8_t *out,
                      size_t size);

/* Answers a question about our zones (instance names of the VPC, their addresses). 0 = not
 * ours: forward it. */
size_t dns_answer_local(struct str msg, const struct dns_query *q, const struct facts *f,
                        uint8_t *out, size_t size);

/* The question as we ask it: new id, EDNS with DNS_UPSTREAM_MAX. 0 when it does not fit. */
size_t dns_make_upstream(struct str msg, const struct dns_query *q, uint16_t id, uint8_t *out,
                         size_t size);

/* An answer of an upstream to 'question' (as sent): same id, same question, is an answer. */
bool dns_is_answer_to(struct str answer, struct str question);
/* Makes it the answer to the client: its id, no OPT when it sent none, cut to 'limit' bytes
 * with TC set when it is too long. Returns the size, 0 when the answer is malformed. 'out'
 * holds at least answer.n bytes. */
size_t dns_make_relayed(struct str answer, const struct dns_query *q, size_t limit,
                        uint8_t *out);
bool dns_is_truncated(struct str answer);
