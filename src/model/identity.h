/* identity.h — accounts, their users and access keys, in the store and in a view for look-ups.
 * Not here: policies (aws/policy.h), signatures (aws/sigv4.h).
 * Store:    iam/account/<account>, iam/user/<account>/<name>, iam/key/<access key id> and
 *           claim/account/<name>. Secrets are wrapped (keys/) for "access-key/<id>".
 * Threads:  a struct identity may be used from any thread; a look-up asks the store nothing
 *           (but identity_ask_key()).
 * Memory:   identity_open() gives, identity_close() takes; results live in the arena.
 * Errors:   of kv.h and keys.h, and those named below. */
#pragma once
#include "aws/sigv4.h"
#include "codec/rec.h"
#include "keys/keys.h"
#include "kv/kv.h"

#define ACCOUNT_ACTIVE      "active"
#define ACCOUNT_CLOSING     "closing" /* being deleted: its keys are refused */

#define ACCESS_KEY_ACTIVE   "Active" /* IAM's words */
#define ACCESS_KEY_INACTIVE "Inactive"

struct account {
    struct rec_head head;
    struct str id, name, status;
    uint64_t create_ns;
};
struct user {
    struct rec_head head;
    struct str account, name, id; /* id "AIDA..." */
    struct str path;              /* "/" */
    uint64_t create_ns;
};
struct access_key {
    struct rec_head head;
    struct str id, account, user, status;
    struct str secret; /* wrapped */
    uint64_t create_ns;
};
extern const struct rec_desc account_desc, user_desc, access_key_desc;

struct account_list {
    struct account *v;
    size_t n;
};
struct access_key_list {
    struct access_key *v;
    size_t n;
};

struct str key_account(struct arena *a, struct str account);
struct str key_user(struct arena *a, struct str account, struct str name);
struct str key_access_key(struct arena *a, struct str id);
struct str key_account_claim(struct arena *a, struct str name);

bool account_id_is_wellformed(struct str id); /* 12 digits */

/* Look-ups, kept up to date by a watch. Waits at most timeout_ns for the first copy. */
struct identity;
MUST_CHECK int identity_open(struct kv *kv, struct keys *keys, uint64_t timeout_ns,
                             struct identity **ret, struct err *err);
void identity_close(struct identity *id); /* NULL is fine */
DEFINE_CLEANUP(struct identity *, identity_close);
/* An aws_key_find_fn; 'ctx' is the struct identity. A key whose account is closing or whose
 * user is gone is not there (-ENOENT). */
MUST_CHECK int identity_find_key(void *ctx, struct arena *a, struct str access_key,
                                 struct aws_key *ret, struct err *err);
/* Asks the store for a key that the look-ups do not show, and waits until they do. Blocks.
 * -ENOENT: there is no such key; -ETIMEDOUT; errors of the store. */
MUST_CHECK int identity_ask_key(struct identity *id, struct str access_key, uint64_t timeout_ns,
                                struct err *err);
/* Waits until the look-ups show the store's revision 'rev'. */
MUST_CHECK int identity_wait(struct identity *id, uint64_t rev, uint64_t timeout_ns);

/* What a new account begins with: three records that belong into one transaction. */
struct identity_new {
    struct account account;
    struct user user; /* "admin" */
    struct access_key key;
    struct str secret; /* plain: shown once to the person who asked */
};
/* Only makes them; the caller writes them together with whatever else an account has.
 * -EINVAL "InvalidAccountName". */
MUST_CHECK int identity_make_account(struct arena *a, struct keys *keys, struct str name,
                                     struct identity_new *ret, struct err *err);
/* One more access key for a user. */
MUST_CHECK int identity_make_key(struct arena *a, struct keys *keys, struct str account,
                                 struct str user, struct access_key *ret,
                                 struct str *ret_secret, struct err *err);

/* identity_make_account() and the transaction. -EEXIST "AccountNameInUse". */
MUST_CHECK int identity_create_account(struct kv *kv, struct arena *a, struct keys *keys,
                                       struct str name, struct identity_new *ret,
                                       struct err *err);
/* identity_make_key() and the transaction. -ENOENT "NoSuchAccount", "NoSuchUser"; -E2BIG
 * "LimitExceeded" above IDENTITY_MAX_KEYS (IAM's limit) of the user. */
#define IDENTITY_MAX_KEYS 2u
MUST_CHECK int identity_create_key(struct kv *kv, struct arena *a, struct keys *keys,
                                   struct str account, struct str user, struct access_key *ret,
                                   struct str *ret_secret, struct err *err);

MUST_CHECK int identity_list_accounts(struct kv *kv, struct arena *a, struct account_list *ret,
                                      struct err *err);
MUST_CHECK int identity_list_keys(struct kv *kv, struct arena *a, struct str account,
                                  struct access_key_list *ret, struct err *err);
/* Takes an account away with what it got by default (network and names). -EBUSY
 * "AccountNotEmpty" says what a person made and is left; -ENOENT "NoSuchAccount". May be called
 * again after it was cut short. */
MUST_CHECK int identity_delete_account(struct kv *kv, struct str account, struct err *err);
