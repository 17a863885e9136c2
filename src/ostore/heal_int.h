/* heal_int.h — where a pass of healing is, as a file on the drive that is healed. Inside the
 *              room only.
 * Not here: healing (heal.h).
 * Format:   docs/formats/object-shard.md, "heal.json".
 * Threads:  that of healing.
 * Memory:   plain values.
 * Errors:   what cannot be read is no place: the pass begins anew. */
#pragma once
#include "ostore/heal.h"

void heal_place_read(struct drives *d, unsigned idx, struct heal_cursor *ret);
/* Best effort: what is lost is done again. */
void heal_place_write(struct drives *d, unsigned idx, const struct heal_cursor *c);
void heal_place_remove(struct drives *d, unsigned idx);
/* The text, for the file and its tests. */
void heal_place_encode(const uint8_t drive_id[16], const struct heal_cursor *c,
                       struct buf *out);
MUST_CHECK int heal_place_decode(struct str text, const uint8_t drive_id[16],
                                 struct heal_cursor *ret);
