#include "base/err.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int fail(struct err *err, int code, const char *name, const char *fmt, ...)
{
    assert(code < 0);
    if (!err || err->code != 0) {
        return code;
    }
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    err->code = code;
    err->name = name;
    err->hint = NULL;
    return code;
}

int err_hint(struct err *err, const char *hint)
{
    if (!err) {
        return -EINVAL;
    }
    if (err->code != 0) {
        err->hint = hint;
    }
    return err->code;
}

int err_context(struct err *err, int code, const char *fmt, ...)
{
    if (!err || err->code == 0) {
        return code;
    }
    char ctx[ERR_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(ctx, sizeof(ctx), fmt, ap);
    va_end(ap);
    char old[ERR_MSG_MAX];
    memcpy(old, err->msg, sizeof(old));
    int n = snprintf(err->msg, sizeof(err->msg), "%s: ", ctx);
    if (n > 0 && (size_t)n < sizeof(err->msg)) {
        snprintf(err->msg + n, sizeof(err->msg) - (size_t)n, "%s", old);
    }
    return err->code;
}

void err_clear(struct err *err)
{
    err->code = 0;
    err->name = NULL;
    err->hint = NULL;
    err->msg[0] = '\0';
}
