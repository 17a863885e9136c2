/* admin.h — what several admin commands share: the account whose key the profile carries.
 * Not here: the commands' tables.
 * Threads:  one.
 * Memory:   in the arena.
 * Errors:   negative errno and *err. */
#pragma once
#include "keys/keys.h"
#include "spx/cmd.h"
#include "spx/profile.h"

/* The first active access key of the account (NULL: of the oldest account) with its secret. */
MUST_CHECK int admin_find_key(struct kv *kv, struct arena *a, struct keys *keys,
                              const char *account, struct str *ret_account, struct str *ret_key,
                              struct str *ret_secret, struct err *err);
/* Writes the profile for the calling user and says so; warns of what would beat it. */
MUST_CHECK int admin_write_profile(struct spx *s, const char *name, struct str access_key,
                                   struct str secret, struct err *err);
/* "https://<host>:<port>"; of the AWS API, and of S3 itself. */
const char *admin_endpoint(struct spx *s);
const char *admin_s3_endpoint(struct spx *s);
