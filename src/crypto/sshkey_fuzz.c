/* What is accepted is accepted again in the form it is stored in, and is the same key. */
#include "crypto/sshkey.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *p = malloc(size ? size : 1);
    if (!p) {
        return 0;
    }
    memcpy(p, data, size);
    struct sshkey_public a = {0}, b = {0};
    struct err err = ERR_INIT;
    int r = sshkey_parse(str_n(p, size), &a, &err);
    assert(r == 0 || (r == -EINVAL && err.name && strcmp(err.name, "InvalidKey.Format") == 0));
    if (r == 0) {
        assert(!strchr(a.line, '\n') && !strpbrk(a.comment, "\n\r") && a.bits >= 256);
        assert(sshkey_parse(str_c(a.line), &b, NULL) == 0);
        assert(a.type == b.type && strcmp(a.line, b.line) == 0 &&
               strcmp(a.fingerprint, b.fingerprint) == 0);
    }
    sshkey_public_done(&a);
    sshkey_public_done(&b);
    free(p);
    return 0;
}
