/* clients.h — what one types into other programs to use this cloud: a text for each.
 * Not here: the profile that they read keys from (profile.h).
 * Threads:  none of its own.
 * Memory:   appends to a buffer.
 * Errors:   none; the buffer's own. No text holds a secret. */
#pragma once
#include "base/buf.h"

struct client_setup {
    const char *profile, *region, *endpoint, *s3_endpoint, *ca_path;
};

/* "aws", "boto3", "node", "rclone", "terraform"; NULL behind the last. */
const char *client_name(size_t i);
/* False when there is no text for that name. */
bool client_text(const char *name, const struct client_setup *c, struct buf *out);
