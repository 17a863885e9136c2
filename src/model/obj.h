/* obj.h — any record of the store as a parsed object: what a view (kv/view.h) keeps per key.
 * Not here: what the members mean (instance.h, volume.h, network.h, node.h, tag.h).
 * Threads:  objects are constant once parsed.
 * Memory:   model_parse() gives one block per record, model_free() takes it; the object IS the
 *           struct: (const struct instance *)entry->obj.
 * Errors:   -EINVAL "BadRecord"; a key that is no record (claims, iam) parses as NULL without
 *           an error set. */
#pragma once
#include "codec/rec.h"

/* The table of the record that lies under 'key', or NULL. */
const struct rec_desc *model_desc(struct str key);

/* Signatures of view_ops.parse and view_ops.free. */
void *model_parse(struct str key, struct str value, struct err *err);
void model_free(struct str key, void *obj);
