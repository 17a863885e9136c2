#include "aws/token.h"

#include "aws/codec_out.h"
#include "codec/json.h"
#include "crypto/digest.h"
#include <errno.h>
#include <inttypes.h>

enum { MAX_HASHED = 8 << 20 };

/* A hash over everything that was asked for, but for the token itself and DryRun. */
static int input_hash(const struct aws_call *call, const void *input, struct str *ret,
                      struct err *err)
{
    const struct aws_service *s = call->service;
    const struct aws_shape *sh = &s->shapes[s->ops[call->op].in];
    AUTO_BUF xml;
    uint8_t hash[SHA256_SIZE];
    char *hex = arena_alloc(call->arena, 2 * SHA256_SIZE + 1),
         *copy = arena_alloc(call->arena, sh->size);
    buf_init(&xml, MAX_HASHED);
    if (!hex || !copy) {
        return fail(err, -ENOMEM, "RequestTooLarge",
                    "The request is larger than this service accepts.");
    }
    memcpy(copy, input, sh->size);
    for (uint16_t i = 0; i < sh->n; i++) {
        const struct aws_member *m = &s->members[sh->first + i];
        if ((m->flags & AWS_F_TOKEN) || strcmp(aws_name(s, m->name), "DryRun") == 0 ||
            strcmp(aws_name(s, m->name), "ClientToken") == 0) {
            memset(copy + m->off, 0, aws_stored_size(&s->shapes[m->shape], true));
        }
    }
    aws_encode_struct(s, s->ops[call->op].in, copy, &xml);
    if (!buf_ok(&xml)) {
        return fail(err, -ENOMEM, "RequestTooLarge",
                    "The request is larger than this service accepts.");
    }
    sha256(buf_str(&xml), hash);
    digest_hex(hash, sizeof(hash), hex);
    *ret = str_n(hex, (size_t)2 * SHA256_SIZE);
    return 0;
}

static struct str claim_key(const struct aws_call *call, struct str token)
{
    uint8_t hash[SHA256_SIZE];
    char hex[2 * SHA256_SIZE + 1];
    sha256(token, hash); /* any byte may be in a token, not in a key */
    digest_hex(hash, sizeof(hash), hex);
    return arena_fmt(call->arena, "claim/token/%.*s/%.*s-%s", STR_ARG(call->account),
                     STR_ARG(call->op_name), hex);
}

/* What is stored: {"v":1,"hash":...,"result":...,"create_ns":...} */
static int read_claim(const struct aws_call *call, struct str value, struct aws_token *tok,
                      struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    int rc = json_parse(value, &j, err);
    if (rc < 0) {
        return rc;
    }
    uint64_t create_ns = json_get_u64(j, "create_ns", 0);
    if (create_ns + AWS_TOKEN_LIFE_NS < call->now_ns) {
        return 0; /* forgotten: this request takes the key over */
    }
    if (!str_eq(json_get_str(j, "hash"), tok->hash)) {
        return fail(err, -EINVAL, "IdempotentParameterMismatch",
                    "Arguments on this idempotent request are inconsistent with arguments used "
                    "in previous request(s).");
    }
    tok->result = arena_str_dup(call->arena, json_get_str(j, "result"));
    tok->is_replay = true;
    return 0;
}

int aws_token_begin(const struct aws_call *call, struct kv *kv, struct str client_token,
                    const void *input, struct aws_token *ret, struct err *err)
{
    struct aws_token tok = {.key = STR_NONE};
    struct kv_item item = {0};
    if (client_token.n == 0) {
        *ret = tok;
        return 0;
    }
    if (client_token.n > AWS_TOKEN_MAX_LEN) {
        return fail(
            err, -EINVAL, "InvalidParameterValue",
            "Value for parameter clientToken is invalid. It is longer than %u characters.",
            AWS_TOKEN_MAX_LEN);
    }
    int rc = input_hash(call, input, &tok.hash, err);
    if (rc < 0) {
        return rc;
    }
    tok.key = claim_key(call, client_token);
    struct err kv_err = ERR_INIT;
    rc = kv_get(kv, call->arena, tok.key, &item, &kv_err);
    if (rc == 0) {
        tok.mod_rev = item.mod_rev;
        rc = read_claim(call, item.value, &tok, err);
    } else if (rc == -ENOENT) {
        rc = 0;
    } else {
        rc = fail(err, rc, kv_err.name, "%s", kv_err.msg);
    }
    if (rc == 0) {
        *ret = tok;
    }
    return rc;
}

struct str aws_token_value(const struct aws_call *call, const struct aws_token *tok,
                           struct str result)
{
    AUTO_BUF out;
    struct jw w;
    buf_init(&out, KV_MAX_VALUE);
    jw_init(&w, &out);
    jw_obj(&w, NULL);
    jw_u64(&w, "v", 1);
    jw_str(&w, "hash", tok->hash);
    jw_str(&w, "result", result);
    jw_u64(&w, "create_ns", call->now_ns);
    jw_obj_end(&w);
    return arena_str_dup(call->arena, buf_str(&out));
}

bool aws_token_is_old(struct str value, uint64_t now_ns)
{
    AUTO(json_freep) struct json *j = NULL;
    struct err err = ERR_INIT;
    if (json_parse(value, &j, &err) < 0) {
        return false; /* kept for the person who must look */
    }
    return json_get_u64(j, "create_ns", 0) + AWS_TOKEN_LIFE_NS < now_ns;
}
