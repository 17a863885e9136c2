/* imds.h — the metadata service as a pure function: facts and a request in, an answer out.
 * Not here: HTTP framing (net/http_server), who asks (resp_http.c finds the interface by link
 *           and address). Listings are made from the same table as the leaves, so that every
 *           listed name answers.
 * Threads:  no state.
 * Memory:   the answer lives in the arena given or in the facts.
 * Errors:   there are none: what is wrong is an answer with the status that AWS gives. */
#pragma once
#include "base/arena.h"
#include "vpcd/facts.h"

struct imds_request {
    struct str method, path; /* path as sent, without the query */
    struct str token;        /* X-aws-ec2-metadata-token, STR_NONE = not sent */
    struct str ttl;          /* X-aws-ec2-metadata-token-ttl-seconds */
    bool is_forwarded;       /* X-Forwarded-For is there */
    uint64_t now_ns;         /* wall clock */
};

struct imds_answer {
    int status;
    const char *content_type;
    struct str body;
    struct str ttl; /* value of X-Aws-Ec2-Metadata-Token-Ttl-Seconds, STR_NONE = do not send */
    bool is_hop_limited; /* the answer carries a token: it may not travel further than the
                            instance's hop limit */
};

void imds_answer(const struct facts *f, const struct fact_eni *eni,
                 const struct imds_request *r, struct arena *a, struct imds_answer *out);
