#include "aws/page.h"

#include "base/buf.h"
#include "codec/base64.h"
#include "crypto/digest.h"
#include <errno.h>
#include <inttypes.h>

enum { MAC_SIZE = 16, TOKEN_MAX = 4096 };

/* The MAC binds a token to who got it and for what, so that it cannot be made up or carried
 * elsewhere. */
static void token_mac(const struct aws_call *call, struct str key, uint8_t out[SHA256_SIZE])
{
    const struct str nul = {"\0", 1};
    const struct str parts[] = {
        call->account, nul, str_c(call->service->name), nul, call->op_name, nul, key};
    hmac_sha256_parts(call->page_key, parts, ARRAY_LEN(parts), out);
}

static int bad_token(const struct aws_call *call, struct err *err)
{
    if (call->service->protocol == AWS_PROTOCOL_QUERY) {
        return fail(err, -EINVAL, "ValidationError", "Invalid Marker.");
    }
    return fail(err, -EINVAL, "InvalidNextToken", "The specified NextToken is not valid.");
}

static int token_open(const struct aws_call *call, struct str token, struct str *ret_key,
                      struct err *err)
{
    AUTO_BUF raw;
    uint8_t mac[SHA256_SIZE];
    buf_init(&raw, TOKEN_MAX);
    if (token.n > TOKEN_MAX || base64_decode(token, &raw) < 0 || raw.n < MAC_SIZE) {
        return bad_token(call, err);
    }
    struct str key = str_skip(buf_str(&raw), MAC_SIZE);
    token_mac(call, key, mac);
    if (!str_eq_consttime(str_n(raw.p, MAC_SIZE), str_n((const char *)mac, MAC_SIZE))) {
        return bad_token(call, err);
    }
    *ret_key = arena_str_dup(call->arena, key);
    return ret_key->p ? 0
                      : fail(err, -ENOMEM, "RequestTooLarge",
                             "The request is larger than this service accepts.");
}

int aws_page_begin(const struct aws_call *call, const struct aws_page_spec *spec,
                   struct opt_i64 max_results, struct str next_token, struct aws_page *ret,
                   struct err *err)
{
    struct aws_page page = {.max = SIZE_MAX};
    if (max_results.is_set && spec->has_ids && spec->ids_param) {
        return fail(err, -EINVAL, "InvalidParameterCombination",
                    "The parameter %s cannot be used with the parameter maxResults",
                    spec->ids_param);
    }
    if (max_results.is_set && max_results.v < spec->min) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value ( %" PRId64 " ) for parameter maxResults is invalid. Expecting a "
                    "value greater than or equal to %" PRId64 ".",
                    max_results.v, spec->min);
    }
    if (max_results.is_set && max_results.v > spec->max) {
        return fail(err, -EINVAL, "InvalidParameterValue",
                    "Value ( %" PRId64 " ) for parameter maxResults is invalid. Expecting a "
                    "value less than or equal to %" PRId64 ".",
                    max_results.v, spec->max);
    }
    int64_t max = max_results.is_set ? max_results.v : spec->dflt;
    if (max > 0) {
        page.max = (size_t)max;
    }
    if (next_token.n > 0) { /* an empty token is none, as clients in shell scripts send it */
        int rc = token_open(call, next_token, &page.after, err);
        if (rc < 0) {
            return rc;
        }
    }
    *ret = page;
    return 0;
}

struct str aws_page_token(const struct aws_call *call, struct str last_key)
{
    uint8_t mac[SHA256_SIZE];
    AUTO_BUF raw, text;
    token_mac(call, last_key, mac);
    buf_init(&raw, TOKEN_MAX);
    buf_init(&text, TOKEN_MAX * 2);
    buf_add(&raw, str_n((const char *)mac, MAC_SIZE));
    buf_add(&raw, last_key);
    base64_encode(buf_str(&raw), &text);
    return str_c(arena_cstr(call->arena, buf_str(&text)));
}
