/* bundle.h — texts as one tar file, with what could be a secret taken out.
 * Not here: what goes into it (cmd_bundle.c).
 * Threads:  no state.
 * Memory:   appends to buffers of the caller.
 * Errors:   those of the buffer: a text that does not fit fails it. */
#pragma once
#include "base/buf.h"
#include <stdint.h>

/* Copies a text line by line without: key blocks (PEM), the rest of a line after a word like
 * "secret" or "password", access keys, passwords in URLs, and runs of letters and digits that are
 * long enough to be a key, in hex or base64. Ids of things stay. Removes too much rather than too
 * little. */
void bundle_redact(struct str text, struct buf *out);
/* One file of a tar archive (ustar), name of at most 99 bytes. */
void bundle_add(struct buf *tar, const char *name, struct str text, uint64_t time_s);
void bundle_end(struct buf *tar);
