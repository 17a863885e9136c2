/* pool_text.h — puts the pool of public addresses on a LAN, in the text of a configuration.
 * Not here: whether the range is free (cmd_network.c), writing the file.
 * Threads:  none of its own.
 * Memory:   appends to a buffer; needs an arena for the while.
 * Errors:   "BadConfig" when the text is not one that can be changed so; then it is for a person.
 */
#pragma once
#include "model/config.h"

struct pool_lan {
    const char *uplink;
    uint32_t first, last, gateway;
    unsigned prefix_len;
};

/* True when the pool has addresses within first..last. Such a pool is replaced by the new one; all
 * others are retired: what is in use of them goes on, and no more is given out. */
bool pool_lan_replaces(const struct pool_lan *lan, const struct config_pool *p);

/* Every line that has nothing to do with it stays as it is, comments too. The result has been
 * parsed again and says what was asked for. */
MUST_CHECK int pool_text_lan(const char *file, struct str text, const struct pool_lan *lan,
                             struct arena *a, struct buf *out, struct err *err);
