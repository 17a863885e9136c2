/* nbd_int.h — the NBD server from the inside: the handshake and the answers are pure (bytes in,
 *             bytes out), a connection is one thread around them.
 * Not here: accepting (nbd.c).
 * Threads:  a connection is its thread's, but for stop_msg and the fields of the loop.
 * Memory:   of a connection: NBD_BUDGET for data, and what the structs have.
 * Errors:   -EPROTO from a parser: disconnect. */
#pragma once
#include "base/buf.h"
#include "blk/blk_int.h"
#include "blk/nbd.h"
#include <pthread.h>

/* ---- numbers of the protocol ---- */

#define NBD_INIT_MAGIC    UINT64_C(0x4e42444d41474943) /* "NBDMAGIC" */
#define NBD_OPT_MAGIC     UINT64_C(0x49484156454f5054) /* "IHAVEOPT" */
#define NBD_REP_MAGIC     UINT64_C(0x0003e889045565a9)
#define NBD_REQUEST_MAGIC 0x25609513u
#define NBD_SIMPLE_MAGIC  0x67446698u
#define NBD_CHUNK_MAGIC   0x668e33efu

enum { NBD_FIXED_NEWSTYLE = 1, NBD_NO_ZEROES = 2 };
enum nbd_opt {
    NBD_OPT_EXPORT_NAME = 1,
    NBD_OPT_ABORT,
    NBD_OPT_LIST,
    NBD_OPT_STARTTLS = 5,
    NBD_OPT_INFO,
    NBD_OPT_GO,
    NBD_OPT_STRUCTURED_REPLY,
    NBD_OPT_LIST_META_CONTEXT,
    NBD_OPT_SET_META_CONTEXT
};
enum { NBD_REP_ACK = 1, NBD_REP_SERVER, NBD_REP_INFO, NBD_REP_META_CONTEXT };
#define NBD_ERR_UNSUP   0x80000001u
#define NBD_ERR_POLICY  0x80000002u
#define NBD_ERR_INVALID 0x80000003u
#define NBD_ERR_UNKNOWN 0x80000006u
#define NBD_ERR_TOO_BIG 0x80000009u
enum { NBD_INFO_EXPORT, NBD_INFO_NAME, NBD_INFO_DESCRIPTION, NBD_INFO_BLOCK_SIZE };
enum nbd_tx_flag {
    NBD_HAS_FLAGS = 1,
    NBD_READ_ONLY = 2,
    NBD_SEND_FLUSH = 4,
    NBD_SEND_FUA = 8,
    NBD_SEND_TRIM = 32,
    NBD_SEND_WRITE_ZEROES = 64,
    NBD_SEND_DF = 128,
    NBD_CAN_MULTI_CONN = 256
};
enum nbd_cmd {
    NBD_CMD_READ,
    NBD_CMD_WRITE,
    NBD_CMD_DISC,
    NBD_CMD_FLUSH,
    NBD_CMD_TRIM,
    NBD_CMD_CACHE,
    NBD_CMD_WRITE_ZEROES,
    NBD_CMD_BLOCK_STATUS
};
enum { NBD_FUA = 1, NBD_NO_HOLE = 2, NBD_DF = 4, NBD_REQ_ONE = 8, NBD_FAST_ZERO = 16 };
enum { NBD_CHUNK_NONE, NBD_CHUNK_DATA, NBD_CHUNK_HOLE, NBD_CHUNK_STATUS = 5 };
#define NBD_CHUNK_ERROR        0x8001u
#define NBD_CHUNK_ERROR_OFFSET 0x8002u
enum { NBD_CHUNK_DONE = 1 };
enum { NBD_EPERM = 1, NBD_EIO = 5, NBD_ENOMEM = 12, NBD_EINVAL = 22, NBD_ENOSPC = 28 };
enum { NBD_STATE_HOLE = 1, NBD_STATE_ZERO = 2 };

#define NBD_REQUEST_SIZE 28u
#define NBD_MAX_PAYLOAD  (32u << 20)
#define NBD_MAX_NAME     4096u
#define NBD_MAX_OPT      (32u << 10) /* bytes of an option that are looked at */
#define NBD_MAX_SKIP     (1u << 20)  /* bytes of an option that are read past */
#define NBD_MAX_OPTS     256u
#define NBD_HELLO_NS     UINT64_C(10000000000) /* for the whole handshake */

/* ---- the handshake ---- */

enum { NBD_CTX_ALLOCATION, NBD_CTX_DIRTY, NBD_CTX_N };

struct nbd_export {
    const char *name;
    uint64_t size;
    bool is_read_only, has_dirty;
};
struct nbd_hs {
    const struct nbd_export *x;
    bool has_flags, no_zeroes, is_structured;
    bool is_serving, is_over; /* how it ended */
    unsigned n_opts;
    uint32_t skip;
    unsigned ctx; /* bit per NBD_CTX_: what the client chose */
};
/* Puts the greeting into 'out'. */
void nbd_hs_begin(struct nbd_hs *h, const struct nbd_export *x, struct buf *out);
/* Takes at most one option from the front of 'in'; returns how many bytes it used (0: there must
 * come more; never when n >= NBD_MAX_OPT + 16), -EPROTO. */
ssize_t nbd_hs_step(struct nbd_hs *h, const uint8_t *in, size_t n, struct buf *out);
unsigned nbd_tx_flags(const struct nbd_export *x, bool is_structured);

/* ---- requests and answers ---- */

#define NBD_IN_FLIGHT   16u
#define NBD_BUDGET      (64u << 20)
#define NBD_PIECES      8u
#define NBD_MAX_CHUNKS  32u
#define NBD_MAX_EXTENTS 512u /* of one context in one answer */
#define NBD_HOLE_MIN    (16u << 10)

struct nbd_request {
    uint16_t flags, type;
    uint64_t cookie, off;
    uint32_t len;
};
/* -EPROTO: not a request, or one whose payload nobody wants to read. */
int nbd_request_parse(const uint8_t p[NBD_REQUEST_SIZE], struct nbd_request *ret);
/* 0 or the protocol's error: command, flags, range, alignment, rights. */
uint32_t nbd_request_check(const struct nbd_request *r, const struct nbd_export *x,
                           const struct nbd_hs *h);
uint32_t nbd_error(int rc); /* of a negative errno */

/* One part of a job on its way through the disk. */
struct nbd_job;
struct nbd_piece {
    struct nbd_job *job;
    struct iovec iov;
    uint64_t off;
    bool is_used;
};
struct nbd_job {
    struct nbd_job *next;
    struct nbd_conn *c;
    struct nbd_request r;
    uint8_t *data;  /* r.len bytes of READ and WRITE */
    uint32_t n_got; /* of WRITE's payload */
    uint32_t error;
    uint64_t error_off; /* UINT64_MAX: the request as a whole */
    uint64_t start_ns;
    uint64_t next_off; /* to be given to the disk next */
    unsigned n_out;    /* pieces under way */
    bool is_flushed, wants_flush;
    struct nbd_piece pieces[NBD_PIECES];
    /* The answer. */
    struct buf head; /* all that is not data */
    struct iovec out[2 * NBD_MAX_CHUNKS + 1];
    unsigned n_iov, iov_idx;
};
/* Fills j->out. */
void nbd_reply(struct nbd_job *j, const struct nbd_hs *h);
struct nbd_extents {
    uint32_t v[NBD_MAX_EXTENTS][2]; /* length, flags */
    unsigned n;
};
bool nbd_extents_add(struct nbd_extents *x, uint32_t len, uint32_t flags, unsigned max);
/* Appends the chunks of BLOCK_STATUS, for the contexts chosen. */
void nbd_status_put(struct nbd_job *j, const struct nbd_hs *h,
                    const struct nbd_extents v[NBD_CTX_N]);
/* nbd_io.c: looks at the disk for them. */
void nbd_status(struct nbd_job *j, struct disk *d, const struct nbd_hs *h);
void nbd_job_free(struct nbd_job *j); /* NULL is fine */

struct nbd_conn {
    struct nbd_conn *next;
    struct nbd *n; /* NULL: the server is gone, the loop only has to free this */
    struct loop *loop;
    unsigned idx;
    int fd;
    pthread_t thread;
    struct blk_queue *q;
    struct blk_msg stop_msg;
    bool is_stop_sent; /* the loop's */

    struct disk *disk;
    struct nbd_export x;
    struct nbd_hs hs;
    uint64_t stall_ns, start_ns, moved_ns; /* moved: when the peer last gave or took a byte */
    bool is_closing;                       /* no more requests; ends when all is answered */
    bool is_dead;                          /* answers go nowhere */
    struct blk_io in_io, out_io;
    bool is_in_armed, is_out_armed, is_waiting;
    uint8_t *in;
    size_t in_n;
    struct buf out;             /* of the handshake */
    struct nbd_job *current;    /* its payload is being read */
    struct nbd_request pending; /* has no room yet */
    bool has_pending;
    uint32_t skip;                       /* bytes of a payload that is not wanted */
    struct nbd_job *jobs;                /* with the disk */
    struct nbd_job *ready, **ready_tail; /* to be sent */
    unsigned n_jobs;                     /* all of them */
    size_t n_bytes;                      /* of their data */
};
int nbd_conn_new(struct nbd_conn **ret, struct err *err);
void *nbd_conn_thread(void *ctx);
void nbd_conn_ended(struct nbd_conn *c); /* nbd.c: the last that the thread does */
void nbd_conn_wait(struct nbd_conn *c);  /* for a request of the queue */
/* Gives the next pieces of j to the disk; false: the queue has no request to spare. */
bool nbd_job_go(struct nbd_job *j);   /* nbd_io.c */
void nbd_job_done(struct nbd_job *j); /* nbd_conn.c: is to be answered */
