/* profile.h — the profile "spinifex" in a user's AWS files.
 * Not here: which account and key (cmd_profile.c).
 * Threads:  none of its own.
 * Memory:   appends to buffers.
 * Errors:   negative errno and *err. Every byte outside the profile's own lines stays as it
 *           was; [default] is never touched. */
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include <sys/types.h>

struct profile_pair {
    const char *key;
    struct str value; /* STR_NONE: the key is taken out */
};

/* Appends 'text' with the section changed or added. 'section' without brackets: "profile x". */
void profile_merge(struct str text, const char *section, const struct profile_pair *pairs,
                   size_t n, struct buf *out);

/* Appends 'text' without the section, and without the blank line in front of it when it is the
 * last: what profile_merge() added at the end of a file is gone. */
void profile_drop(struct str text, const char *section, struct buf *out);

/* Whose files: $SUDO_USER's when root, else the caller's. */
struct profile_user {
    uid_t uid;
    gid_t gid;
    char name[64], home[400];
    bool is_other; /* not the user this process runs as */
};
MUST_CHECK int profile_find_user(struct profile_user *ret, struct err *err);

struct profile {
    const char *name; /* "spinifex" */
    const char *endpoint, *ca_path, *region;
    struct str access_key, secret;
};
/* Writes both files as that user (links in his folders lead nowhere that he could not write
 * himself), mode 0600. The paths that were used come back. */
MUST_CHECK int profile_write(const struct profile_user *u, const struct profile *p,
                             char *ret_config, char *ret_credentials, size_t path_size,
                             struct err *err);

/* Takes the profile out of both files again; a file, and a folder, that is empty then goes. 0 also
 * when there is no such profile. */
MUST_CHECK int profile_remove(const struct profile_user *u, const char *name, struct err *err);

/* The value of an option of a section, as AWS's tools would read it; STR_NONE. Borrows. */
struct str profile_get(struct str text, const char *section, const char *key);
/* What a program needs to call: from the environment (AWS_ACCESS_KEY_ID, ...) or else from the
 * files of the user; members are "" when nothing says them. "NoCredentials" without a key. In the
 * arena. */
struct profile_keys {
    const char *access_key, *secret, *token, *region, *endpoint, *ca_path;
};
struct arena;
MUST_CHECK int profile_read(struct arena *a, const struct profile_user *u, const char *name,
                            struct profile_keys *ret, struct err *err);
