/* vu_verify.h — a load over vhost-user that checks every byte and every completion with an
 *              oracle, and goes on when the server is killed and comes back.
 * Not here: measuring (vu_load.h), the frontend (vu_client.h), the model of the disk
 *           (vu_oracle.h).
 * Threads:  one per queue, made and joined by vu_verify_run().
 * Memory:   borrows client and oracle.
 * Errors:   -ETIMEDOUT "Hung": nothing came for hang_ns; -EIO "BadStatus"; -EBADMSG "Wrong"
 *           (the oracle's reason); with has_resets a server that goes away is waited for. */
#pragma once
#include "blk/load.h"
#include "blk/vu_client.h"
#include "blk/vu_oracle.h"

struct vu_verify_opts {
    struct vu_client *client;
    struct vu_oracle *oracle;
    unsigned n_queues, depth; /* per queue */
    uint64_t block;           /* of a request, multiple of VU_ORACLE_BLOCK */
    uint64_t size;            /* bytes of the disk that are used, from 0 on */
    unsigned read_pct;        /* of data requests, the rest writes */
    unsigned flush_pct, zeroes_pct, discard_pct; /* of all requests */
    uint64_t duration_ns,
        n_max; /* which comes first; n_max: requests of all queues, 0 = no limit */
    uint64_t seed;
    bool has_resets;        /* -ECONNRESET: connect again and go on */
    uint64_t hang_ns;       /* 0 = 30 s */
    const bool *is_stopped; /* may end it early; or NULL */
};
struct vu_verify_result {
    uint64_t n_reads, n_writes, n_others, n_resets, longest_ns; /* longest_ns: of one request */
};
MUST_CHECK int vu_verify_run(const struct vu_verify_opts *o, struct vu_verify_result *ret,
                             struct err *err);
/* Reads everything once and compares it. */
MUST_CHECK int vu_verify_all(const struct vu_verify_opts *o, struct err *err);
