/* vu_load.h — load on a disk: patterns, depth, queues, for a time or a number; over vhost-user or, the
 *             same loop, raw io_uring on a file; with an oracle every byte is checked.
 * Not here: what the figures are compared with (bench/block), the frontend (vu_client.h).
 * Threads:  one per queue, made and joined by vu_load_run().
 * Memory:   borrows client, descriptor and oracle.
 * Errors:   -ETIMEDOUT "Hung": nothing came for hang_ns; -EIO "BadStatus"; -EBADMSG "Wrong" (the
 *           oracle's reason); with has_resets a server that goes away is waited for. */
#pragma once
#include "blk/vu_client.h"
#include "blk/vu_oracle.h"

enum vu_load_pattern { VU_LOAD_RANDOM, VU_LOAD_SEQUENTIAL };

struct vu_load_opts {
    struct vu_client *client; /* or NULL: raw */
    int raw_fd;               /* opened with O_DIRECT */
    unsigned n_queues, depth; /* per queue */
    uint64_t block;           /* bytes of a request */
    uint64_t size;            /* bytes of the disk that are used, from 0 on */
    enum vu_load_pattern pattern;
    unsigned read_pct; /* of data requests, the rest writes */
    unsigned flush_pct, zeroes_pct,
        discard_pct;             /* of all requests; the two last need an oracle */
    bool has_flush_each;         /* a flush after every write, and the next only after it */
    uint64_t duration_ns, n_max; /* which comes first; n_max counts all queues, 0 = no limit */
    uint64_t seed;
    struct vu_oracle *oracle; /* or NULL; then 'block' is a multiple of VU_ORACLE_BLOCK */
    bool has_resets;          /* -ECONNRESET: connect again and go on */
    uint64_t hang_ns;         /* 0 = 30 s */
    const bool *is_stopped;   /* may end it early; or NULL */
};

#define VU_LOAD_BUCKETS 1024u /* 16 per power of two of nanoseconds */
struct vu_load_result {
    uint64_t n[2], n_flush, n_zeroes, bytes, ns, n_resets, longest_ns; /* n: reads, writes */
    uint64_t latency[2][VU_LOAD_BUCKETS];
};
MUST_CHECK int vu_load_run(const struct vu_load_opts *o, struct vu_load_result *ret,
                           struct err *err);
/* Nanoseconds below which 'permille' of reads (0) or writes (1) were done. */
uint64_t vu_load_latency(const struct vu_load_result *r, unsigned which, unsigned permille);
/* Reads everything once and compares it. */
MUST_CHECK int vu_load_check_all(const struct vu_load_opts *o, struct err *err);
