#include "os/nft.h"

#include <errno.h>
#include <nftables/libnftables.h>

struct nft {
    struct nft_ctx *ctx;
};

int nft_open(struct nft **ret, struct err *err)
{
    struct nft_ctx *ctx = nft_ctx_new(NFT_CTX_DEFAULT);
    if (!ctx) {
        return fail(err, -ENOMEM, "NftFailed", "libnftables gives no context");
    }
    /* Without buffers the library prints to the service's own standard output. */
    if (nft_ctx_buffer_output(ctx) || nft_ctx_buffer_error(ctx)) {
        nft_ctx_free(ctx);
        return fail(err, -ENOMEM, "NftFailed", "libnftables gives no buffers");
    }
    struct nft *n = calloc(1, sizeof(*n));
    if (!n) {
        nft_ctx_free(ctx);
        return fail(err, -ENOMEM, "NftFailed", "out of memory");
    }
    n->ctx = ctx;
    *ret = n;
    return 0;
}

void nft_close(struct nft *n)
{
    if (n) {
        nft_ctx_free(n->ctx);
        free(n);
    }
}

static int run(struct nft *n, const char *text, struct err *err)
{
    /* Reading empties the buffers of the last command. */
    (void)nft_ctx_get_output_buffer(n->ctx);
    (void)nft_ctx_get_error_buffer(n->ctx);
    if (nft_run_cmd_from_buffer(n->ctx, text)) {
        struct str said = str_cut(str_c(nft_ctx_get_error_buffer(n->ctx)), '\n');
        return fail(err, -EINVAL, "NftFailed", "nftables: %.*s", STR_ARG(said));
    }
    return 0;
}

int nft_apply(struct nft *n, const char *document, struct err *err)
{
    return run(n, document, err);
}

int nft_list(struct nft *n, const char *command, struct str *ret, struct err *err)
{
    int r = run(n, command, err);
    if (r) {
        return r;
    }
    *ret = str_c(nft_ctx_get_output_buffer(n->ctx));
    return 0;
}
