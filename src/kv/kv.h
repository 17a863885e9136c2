/* kv.h — the one door to shared state: ordered keys, revisions, transactions, watches,
 *           leases.
 * Not here: what the values mean (model/), where they lie (kv_sqlite.c, kv_remote.c, later
 *           etcd).
 * Limits:   etcd's: KV_MAX_OPS operations a transaction, KV_MAX_VALUE bytes a value,
 *           KV_MAX_KEY a key; a watch may answer compacted.
 * Threads:  a struct kv may be used from any thread; calls block. Watch call-backs run on one
 *           thread of the kv: one at a time. They may call the kv.
 * Memory:   results are allocated in the arena given; watch events are borrowed until the
 *           call-back returns.
 * Errors:   -EAGAIN "TxnConflict" a compare failed and nothing was written; -ENOENT
 *           "KeyNotFound", "LeaseNotFound"; -EPERM "AccessDenied" this process may not;
 *           -ENOTCONN "Unavailable"; -E2BIG "TooLarge"; -EBUSY "SlowDown"; -EINVAL "BadKey",
 *           "DuplicateKey", "BadTtl"; -ENOSPC "StoreFull"; -EIO. When a transaction answers
 *           -ECONNRESET "Interrupted" it may or may not have been applied: read before you
 *           decide. After any other error nothing was written. */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include <stdint.h>

#define KV_MAX_OPS   128u
#define KV_MAX_VALUE (1u << 20)
#define KV_MAX_KEY   1024u
#define KV_MAX_TXN   (1280u << 10) /* bytes of keys and values; a key may be in it once */
#define KV_MAX_TTL_S 86400u

struct kv;
struct kv_watch;

struct kv_item {
    struct str key, value;
    uint64_t create_rev, mod_rev; /* revisions of the store at creation and last change */
    uint64_t lease;               /* 0 = none */
};

struct kv_list {
    struct kv_item *v;
    size_t n;
    uint64_t rev;  /* the revision that this list shows */
    bool has_more; /* 'limit' cut it: go on after the last key */
};

/* The key's mod_rev must be this; 0 = the key must not exist. */
struct kv_cmp {
    struct str key;
    uint64_t mod_rev;
};

struct kv_op {
    enum { KV_PUT, KV_DELETE } type; /* deleting an absent key is fine */
    struct str key, value;
    uint64_t lease;
};

/* The embedded back end: one sqlite file, WAL, synchronous=FULL; commits of concurrent callers
 * share one fsync. */
MUST_CHECK int kv_open_sqlite(const char *path, struct kv **ret, struct err *err);
/* Through spx-state. Connects lazily, reconnects, resumes watches. The service is named by the
 * program: "spx-vpcd" is "vpcd", "spx" is "admin". */
MUST_CHECK int kv_open_remote(const char *socket_path, struct kv **ret, struct err *err);
MUST_CHECK int kv_open_remote_as(const char *socket_path, const char *service, struct kv **ret,
                                 struct err *err);
void kv_close(struct kv *kv); /* stop the watches first; NULL is fine */
DEFINE_CLEANUP(struct kv *, kv_close);

MUST_CHECK int kv_get(struct kv *kv, struct arena *a, struct str key, struct kv_item *ret,
                      struct err *err);
/* Keys that begin with 'prefix' and come after 'after' (STR_NONE = from the start), ascending;
 * limit 0 = KV_LIST_MAX. A page ends early (has_more) when it holds about 1 MiB. */
#define KV_LIST_MAX 1000u
MUST_CHECK int kv_list(struct kv *kv, struct arena *a, struct str prefix, struct str after,
                       size_t limit, struct kv_list *ret, struct err *err);
/* All compares hold -> all operations are applied at one revision, durable before the answer.
 * What changes nothing (only compares, deletes of absent keys) makes no revision. ret_rev may
 * be NULL. */
MUST_CHECK int kv_txn(struct kv *kv, const struct kv_cmp *cmp, size_t n_cmp,
                      const struct kv_op *op, size_t n_op, uint64_t *ret_rev, struct err *err);
uint64_t kv_revision(struct kv *kv); /* newest revision this process has heard of */

struct kv_event {
    enum { KV_EVENT_PUT, KV_EVENT_DELETE, KV_EVENT_SYNC, KV_EVENT_RESET } type;
    /* PUT: the item; DELETE: key and mod_rev; SYNC and RESET: mod_rev = revision */
    struct kv_item item;
};
/* RESET: history was compacted; the whole prefix follows as PUTs (changes made meanwhile
 * between them, DELETEs too), then SYNC; forget what is not among them. Events of one key come
 * in order of revision, each change once. SYNC: everything up to mod_rev has been delivered. */
typedef void (*kv_watch_fn)(void *ctx, const struct kv_event *ev);
/* from_rev 0: first RESET, all present items as PUTs, SYNC, then changes. Otherwise changes
 * after from_rev. */
MUST_CHECK int kv_watch_start(struct kv *kv, struct str prefix, uint64_t from_rev,
                              kv_watch_fn fn, void *ctx, struct kv_watch **ret,
                              struct err *err);
void kv_watch_stop(struct kv_watch *w); /* no call-back after it returns */

/* Keys put with a lease go when it is not kept alive for ttl_s. Keeping alive writes nothing to
 * disk. */
MUST_CHECK int kv_lease_grant(struct kv *kv, uint32_t ttl_s, uint64_t *ret_lease,
                              struct err *err);
MUST_CHECK int kv_lease_keepalive(struct kv *kv, uint64_t lease,
                                  struct err *err); /* -ENOENT: it ended */
MUST_CHECK int kv_lease_revoke(struct kv *kv, uint64_t lease, struct err *err);
