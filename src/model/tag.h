/* tag.h — tags: one record per tagged resource, whatever its kind, so that every Describe reads
 * the same store.
 * Not here: tag filters (aws/filter).
 * Who writes: awsgw, in the transaction that makes or tags the resource. Key:
 *             spec/tags/<account>/<resource id>.
 * Threads, memory, errors: see codec/rec.h. */
#pragma once
#include "codec/rec.h"

struct tag {
    struct rec_head head;
    struct str key, value;
};
struct tag_list {
    struct tag *v;
    size_t n;
};
struct tags {
    struct rec_head head;
    struct str id, account;
    struct str resource_type; /* "instance", "volume", ... as DescribeTags prints it */
    struct tag_list tags;     /* ascending by key */
};
extern const struct rec_desc tag_desc, tags_desc;
