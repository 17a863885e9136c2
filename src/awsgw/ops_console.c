/* GetConsoleOutput: the text comes from compute, which keeps it also when the instance is
 * stopped. */
#include "awsgw/ops.h"

#include "awsgw/inst.h"
#include "base/time.h"
#include "codec/json.h"

#include <errno.h>

#define COMPUTE_TIMEOUT_NS (10 * NS_PER_S)

static struct str request_json(struct aws_call *call, struct str id, bool is_latest)
{
    AUTO_BUF b;
    struct jw w;
    buf_init(&b, 1024);
    jw_init(&w, &b);
    jw_obj(&w, NULL);
    jw_str(&w, "account", call->account);
    jw_str(&w, "instance_id", id);
    jw_bool(&w, "is_latest", is_latest);
    jw_obj_end(&w);
    return arena_str_dup(call->arena, buf_str(&b));
}

int ec2_get_console_output(struct aws_call *call, const void *input, void *output,
                           struct err *err)
{
    const struct ec2_get_console_output_request *in = input;
    struct ec2_get_console_output_result *out = output;
    const struct view_entry *e = find_one(call, AWS_ID_INSTANCE, in->instance_id, err);
    int r = e ? aws_dry_run(call, err) : err->code;
    if (r < 0) {
        return r;
    }
    AUTO(rpc_reply_done) struct rpc_reply reply = {0};
    struct err far = ERR_INIT;
    r = rpc_call(gw_of(call)->compute, STR("console.get"),
                 request_json(call, in->instance_id, in->latest.v), NULL, 0, COMPUTE_TIMEOUT_NS,
                 &reply, &far);
    out->instance_id = in->instance_id;
    if (r == -ENOENT) {
        out->timestamp = some_time(
            call->now_ns); /* nothing has been printed yet: AWS answers without Output */
        return 0;
    }
    if (r < 0) {
        return fail(err, r, "InternalError", "The console of %.*s cannot be read: %s",
                    STR_ARG(in->instance_id), far.msg);
    }
    AUTO(json_freep) struct json *j = NULL;
    if ((r = json_parse(str_n(reply.payload, reply.n), &j, err)) < 0) {
        return r;
    }
    out->timestamp = some_time(json_get_u64(j, "taken_ns", call->now_ns));
    struct str text = json_get_str(j, "text");
    out->output = text.n > 0 ? arena_str_dup(call->arena, text) : STR_NONE;
    if (text.n > 0 && !out->output.p) {
        return fail(err, -ENOMEM, "InternalError",
                    "the console text does not fit into this request's memory");
    }
    return 0;
}
