/* nft.h — one nftables document applied as one transaction, in the calling thread's namespace.
 * Not here: what the document says (vpcd/ruleset). libnftables is seen in nft.c only.
 * Threads:  a struct nft belongs to one thread; the namespace is the one in which it was
 *           opened: open and use inside netns_run().
 * Memory:   nft_open() gives; texts are borrowed until the next call.
 * Errors:   -EINVAL "NftFailed" with the library's first line: nothing of the document was
 *           applied. */
#pragma once
#include "base/err.h"
#include "base/str.h"

struct nft;

MUST_CHECK int nft_open(struct nft **ret, struct err *err);
void nft_close(struct nft *n); /* NULL is fine */
DEFINE_CLEANUP(struct nft *, nft_close);
/* All of the document or nothing of it. */
MUST_CHECK int nft_apply(struct nft *n, const char *document, struct err *err);
/* Runs one "list ..." command; *ret is its text, borrowed until the next call. */
MUST_CHECK int nft_list(struct nft *n, const char *command, struct str *ret, struct err *err);
