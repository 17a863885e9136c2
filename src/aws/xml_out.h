/* xml_out.h — XML text into a buffer: elements and escaped text, always well-formed.
 * Not here: reading XML (nobody parses XML in this room yet).
 * Threads:  no state.
 * Memory:   appends to the buffer; its limit bounds the work.
 * Errors:   none here: check buf_ok() at the end. Bytes that are not UTF-8 or not characters
 *           of XML 1.0 become U+FFFD. */
#pragma once
#include "base/buf.h"

void xml_open(struct buf *out, const char *name);  /* <name> */
void xml_close(struct buf *out, const char *name); /* </name> */
void xml_empty(struct buf *out, const char *name); /* <name/> */
void xml_text(struct buf *out, struct str text);
void xml_elem(struct buf *out, const char *name, struct str text); /* <name>text</name> */
void xml_elemc(struct buf *out, const char *name, const char *text);
