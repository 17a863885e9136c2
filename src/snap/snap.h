/* snap.h — snapshots in the object store: blocks by the hash of what they hold, manifests,
 *           what is being uploaded, and freeing exactly what nothing needs any more.
 * Not here: who asks (viperblock/), reading volumes (blk/), API records (model/volume.h).
 * Threads:  any; calls block (pool threads). One process (the manager) uses a store at a time.
 * Memory:   snap_open() gives. Buffers are the caller's; what snap_put() is given must not
 *           change while it runs.
 * Errors:   -ENOENT "NoSuchBlock", "NoSuchSnapshot", "NoSuchUpload"; -EBADMSG "BlockDamaged",
 *           "ManifestDamaged", "UploadDamaged": bytes are not what they should be (never
 *           returned as data); -EAGAIN "StoreUnavailable": try again (the store is away, slow
 *           or full: the message says which); -EACCES "Locked"; -EBUSY "UploadBusy"; -EEXIST
 *           "SnapshotExists", "UploadDiffers"; -EIO "UploadFaulted": its log cannot be
 *           written, give it up.
 * Format:   docs/formats/snapshot.md. In the bucket ".viperblock": b/<account>/<name> blocks,
 *           p/<account>/<name> pages of manifests, m/<account>/<id> manifests,
 *           r/<account>/<id> manifests that only keep, k/<account> its keys (wrapped).
 *
 * A block is SNAP_BLOCK bytes; the last of a volume is padded with zeros; a block of zeros is
 * not stored. Name: SHA-256 of the bytes. Encrypted: the object is sealed with AES-256-GCM
 * under the account's block key, the name is HMAC-SHA-256 of the plain bytes under the
 * account's name key, so that a name tells nothing; both keys are random, wrapped under the
 * root key, made once per account. Nothing is shared between accounts. A manifest has pages of
 * SNAP_PAGE_BLOCKS entries; pages are named by their hash, so that snapshots that follow each
 * other share those that did not change. Invariants:
 *  S1 a snapshot is visible (manifest there) only after all its blocks and pages are durable;
 *  S2 what a visible manifest, a pending upload or a root needs is never freed, whatever is
 *     killed when;
 *  S3 what none of these needs is freed by the next collection, to the byte;
 *  S4 every block read is checked against its name before a byte of it is used. */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/str.h"
#include "keys/keys.h"
#include <stdbool.h>
#include <stdint.h>

#define SNAP_BLOCK       (512u << 10)
#define SNAP_PAGE_BLOCKS 1024u
#define SNAP_NAME        32u                  /* bytes */
#define SNAP_SIZE_MAX    (UINT64_C(64) << 40) /* of a disk: AWS's largest */
#define SNAP_UPLOADS_MAX 1024u                /* under way at once, of all accounts */

struct snap_store;
struct snap_opts {
    const char *socket;      /* S3 without TLS on a unix socket (RUN_S3_SOCKET) */
    const char *bucket;      /* ".viperblock" */
    const char *pending_dir; /* logs of uploads under way; made */
    struct keys *keys;       /* for encrypted snapshots; may be locked; NULL: none of those */
    unsigned n_conns;        /* kept connections, 0 = 8 */
    uint64_t stall_ns;       /* without a byte from the store: it is away; 0 = 10 s */
    size_t collect_names;    /* names that a collection holds in memory; 0 = 3 M (128 MiB) */

    /* Tests: the file system of the logs, and a look at every request before it is sent
     * (is_done false) and after its answer came; negative: this is what became of it. */
    struct fault_fs *fs;
    int (*on_request)(void *ctx, bool is_done, const char *method, const char *key);
    void *ctx;
};
MUST_CHECK int snap_open(const struct snap_opts *o, struct snap_store **ret, struct err *err);
void snap_close(struct snap_store *s); /* nothing may be running; NULL is fine */
DEFINE_CLEANUP(struct snap_store *, snap_close);

/* ---- uploads under way: an append-only log per snapshot, so that a killed manager goes on
 * ---- */

struct snap_info {
    char id[24], account[16], parent[24]; /* parent "" = none */
    uint64_t size;                        /* bytes of the disk */
    bool is_encrypted;
    uint64_t n_blocks, n_zero; /* stored in the manifest; known to be zeros */
    uint64_t n_new;            /* not in the parent */
    bool is_kept;              /* of snap_stat(): only kept, its name is gone */
    bool is_damaged;           /* of snap_pending(): only snap_abort() is left */
};

/* Begins: unnamed blocks are those of the parent (which must be a visible snapshot of the same
 * account and encryption, not larger, or a kept root; it may be deleted the moment this
 * returns), or zeros. 0 also when the same upload is under way already; -EEXIST
 * "UploadDiffers" when one with other values is, "SnapshotExists" when it is committed. */
MUST_CHECK int snap_begin(struct snap_store *s, const struct snap_info *info, struct err *err);
/* Stores one block (SNAP_BLOCK bytes, data NULL or all zeros = hole): returns when it is
 * durable and in the log. Any thread, any order, the same block again replaces. ret_name may
 * be NULL. */
MUST_CHECK int snap_put(struct snap_store *s, struct str id, uint64_t block, const void *data,
                        uint8_t ret_name[SNAP_NAME], struct err *err);
/* Which blocks were put: walks the log, the same block maybe more than once (the last counts).
 * A negative answer of 'fn' ends it. */
MUST_CHECK int snap_walk(struct snap_store *s, struct str id,
                         int (*fn)(void *ctx, uint64_t block, const uint8_t name[SNAP_NAME]),
                         void *ctx, struct err *err);
/* Writes pages and manifest; waits for puts that run. 'n_changed' of CompleteSnapshot is the
 * caller's to check. ret may be NULL. -ENOENT "NoSuchUpload" when it was committed already:
 * see snap_stat(). */
MUST_CHECK int snap_commit(struct snap_store *s, struct str id, struct snap_info *ret,
                           struct err *err);
/* Gives up: what it alone needed is freed by the next collection. Fine when there is none. */
MUST_CHECK int snap_abort(struct snap_store *s, struct str id, struct err *err);
MUST_CHECK int snap_pending(struct snap_store *s, struct arena *a, struct snap_info **ret,
                            size_t *ret_n, struct err *err);

/* ---- visible snapshots (and kept roots: whoever reads one finds it too) ---- */

MUST_CHECK int snap_stat(struct snap_store *s, struct str account, struct str id,
                         struct snap_info *ret, struct err *err);
/* Ids of an account's visible snapshots, or of its kept roots. */
MUST_CHECK int snap_list(struct snap_store *s, struct str account, bool is_kept,
                         struct arena *a, struct str **ret, size_t *ret_n, struct err *err);
/* Accounts that have anything here, from their manifests, roots, blocks, pages and uploads. */
MUST_CHECK int snap_accounts(struct snap_store *s, struct arena *a, struct str **ret,
                             size_t *ret_n, struct err *err);
/* Entries [first, first + n): 32-byte names; all zeros = a hole. Pages are cached (bounded).
 * -EINVAL "BadBlock" past the end. */
MUST_CHECK int snap_names(struct snap_store *s, struct str account, struct str id,
                          uint64_t first, size_t n, uint8_t (*ret)[SNAP_NAME], struct err *err);
/* Next block at or after 'from' that is stored (b id empty), or that differs between two
 * snapshots of one account or of two: *ret = UINT64_MAX at the end. Whole pages that are equal
 * are skipped. */
MUST_CHECK int snap_next(struct snap_store *s, struct str account_a, struct str a,
                         struct str account_b, struct str b, uint64_t from, uint64_t *ret,
                         struct err *err);
/* 0 and data, or 1: a hole (buf is zeroed). */
MUST_CHECK int snap_get(struct snap_store *s, struct str account, struct str id, uint64_t block,
                        void *buf, struct err *err);
/* Another account's or a changed encryption: copies block by block, and goes on where it was
 * when it is called again; progress by 'done' of 'total' blocks, false ends it ("Cancelled").
 * Nothing is copied within one account and encryption but the manifest. The upload is
 * committed then. */
MUST_CHECK int snap_copy(struct snap_store *s, struct str account, struct str id,
                         const struct snap_info *to,
                         bool (*on_progress)(void *, uint64_t, uint64_t), void *ctx,
                         struct err *err);
/* The manifest goes (first, durably), and an upload of this name; blocks go with the next
 * snap_collect(). 0 when it is not there. */
MUST_CHECK int snap_delete(struct snap_store *s, struct str account, struct str id,
                           struct err *err);
/* Takes the name away but keeps manifest and blocks as a root, for volumes that still hydrate
 * from it or whose dirty bits count from it; snap_unkeep() gives it up. Both idempotent. */
MUST_CHECK int snap_keep(struct snap_store *s, struct str account, struct str id,
                         struct err *err);
MUST_CHECK int snap_unkeep(struct snap_store *s, struct str account, struct str id,
                           struct err *err);

/* Mark and sweep of one account: frees blocks and pages that no manifest, kept root or pending
 * upload names. Safe beside everything else; one at a time. Frees nothing while a manifest, a
 * page or an upload cannot be read (-EBADMSG): what it names is not known. The counts are for
 * tests and 'spx admin volumes check'. */
struct snap_usage {
    uint64_t n_manifests, n_kept, n_pending;
    uint64_t n_pages, n_blocks, bytes;                   /* needed and there; bytes of both */
    uint64_t n_freed_blocks, n_freed_pages, freed_bytes; /* check: that could be freed */
    uint64_t n_missing, n_damaged; /* named and not there; not what their names say */
};
MUST_CHECK int snap_collect(struct snap_store *s, struct str account, struct snap_usage *ret,
                            struct err *err);
/* Looks at everything ('is_deep': reads every block) and changes nothing. */
MUST_CHECK int snap_check(struct snap_store *s, struct str account, bool is_deep,
                          struct snap_usage *ret, struct err *err);
/* Names what snap_check() counted: blocks of visible snapshots and kept roots that are missing
 * (-ENOENT) or damaged (-EBADMSG). Reads every block; a negative answer of 'fn' ends it. */
typedef int (*snap_damage_fn)(void *ctx, struct str id, uint64_t block, int rc);
MUST_CHECK int snap_find_damage(struct snap_store *s, struct str account, snap_damage_fn fn,
                                void *ctx, struct err *err);
