/* txn.h — one transaction built record by record, committed, and waited for in the view (read
 * your own writes).
 * Not here: what to write.
 * Threads:  a struct txn belongs to its request.
 * Memory:   everything lives in the arena.
 * Errors:   -EAGAIN "TxnConflict" from txn_commit(): somebody else changed what this was based
 *           on; the request is run again from its start (http.c does that for operations).
 *           -E2BIG "ResourceCountExceeded" when more than KV_MAX_OPS are needed. */
#pragma once
#include "aws/token.h"
#include "awsgw/gw.h"
#include "codec/rec.h"

struct txn {
    struct gw *gw;
    struct arena *a;
    struct kv_cmp cmp[KV_MAX_OPS];
    struct kv_op op[KV_MAX_OPS];
    size_t n_cmp, n_op;
    struct err err; /* the first thing that went wrong while building */
};

void txn_init(struct txn *t, struct gw *gw, struct arena *a);
/* A new, empty one in the arena of the call. */
struct txn *txn_open(const struct aws_call *call);
/* 'rev' 0: the key must be absent. */
void txn_expect(struct txn *t, struct str key, uint64_t rev);
/* A new record: the key must be absent. */
void txn_create(struct txn *t, struct str key, const struct rec_desc *d, const void *rec);
/* A changed record: nobody may have changed it since 'e' was read. */
void txn_update(struct txn *t, const struct view_entry *e, const struct rec_desc *d,
                const void *rec);
/* Create or update, by whether 'e' is there. */
void txn_set(struct txn *t, const struct view_entry *e, struct str key,
             const struct rec_desc *d, const void *rec);
/* Claims a name or an address for 'owner': the key must be absent. */
void txn_claim(struct txn *t, struct str key, struct str owner);
/* A user's text as a part of a key: bytes outside [A-Za-z0-9._-] become %XX, so that no name
 * can reach into another key. */
struct str name_key(struct arena *a, struct str name);
/* Waits until all that was written together with 'e' is seen too: the view shows a transaction
 * record by record. To be called on what is changed to guard other records ("touched") before
 * those are looked at. */
MUST_CHECK int txn_settle(struct gw *gw, const struct view_entry *e, struct err *err);
/* Of two transactions that take the same lock at once one conflicts. Take it before looking at
 * what it guards: what was seen then still holds when the transaction commits. */
void txn_lock(struct txn *t, struct str key);
void txn_delete(struct txn *t, const struct view_entry *e); /* unchanged since 'e' was read */
void txn_delete_key(struct txn *t, struct str key);         /* whatever it holds */
/* The claim of a client token (aws/token.h), with what its request makes; nothing when no token
 * was given. */
void txn_token(struct txn *t, const struct aws_call *call, const struct aws_token *tok,
               struct str result);
/* aws_token_begin(), and for a replay waits until the view shows what the first request made. */
MUST_CHECK int txn_token_begin(const struct aws_call *call, struct str client_token,
                               const void *input, struct aws_token *ret, struct err *err);
MUST_CHECK int txn_commit(struct txn *t, struct err *err);
