/* page.h — what lists have in common: limits, encoding-type, continuation tokens.
 * Not here: the walk itself (ostore.h), the lists (list.c, bucket.c).
 * Threads:  no state.
 * Memory:   results live in the arena.
 * Errors:   "InvalidArgument" with ArgumentName and ArgumentValue. */
#pragma once
#include "predastore/s3.h"

#define PAGE_MAX 1000u

/* The size of a page: 1000 when absent, at most 'most'. Negative: InvalidArgument. */
MUST_CHECK int page_size(struct s3_call *c, const char *name, struct opt_i64 given, size_t most,
                         size_t *ret, struct err *err);

/* encoding-type: STR_NONE or "url". */
struct page_enc {
    struct arena *arena;
    bool is_url;
};
MUST_CHECK int page_enc_begin(struct s3_call *c, struct str type, struct page_enc *ret,
                              struct err *err);
/* A key, prefix, delimiter or marker as it goes into the answer; STR_NONE stays so. */
struct str page_enc_text(const struct page_enc *e, struct str s);

/* Opaque texts that name where the next page begins, of one list only: 'scope' is that list (a
 * bucket's number). What was not made here, or for another list, is refused. They hold nothing
 * that the client may not say itself by start-after, so a checksum suffices. */
struct str page_token(struct arena *a, uint64_t scope, struct str after);
/* -EINVAL. */
MUST_CHECK int page_token_parse(struct arena *a, uint64_t scope, struct str token,
                                struct str *ret_after);
/* page_token_parse() with AWS's error. */
MUST_CHECK int page_token_take(struct s3_call *c, uint64_t scope, struct str token,
                               struct str *ret_after, struct err *err);
/* The error that follows is about this argument. */
void page_name(struct s3_call *c, const char *name, struct str value);
/* "InvalidArgument" about one argument. */
int page_bad(struct s3_call *c, const char *name, struct str value, const char *msg,
             struct err *err);
