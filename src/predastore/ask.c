/* A key that the look-ups do not show may have been made a moment ago: the store is asked before
 * the request is refused. The request waits meanwhile, without its body. */
#include "predastore/front_int.h"

#include "base/log.h"
#include "base/time.h"
#include "model/identity.h"
#include "predastore/strangers.h"

#include <errno.h>

LOG_MODULE("predastore.ask");

#define TIMEOUT_NS (5 * NS_PER_S) /* of the look-ups, once the store has answered */

static void again(void *ctx)
{
    struct front_call *fc = ctx;
    front_begin_again(fc);
}

static void ask_job(void *ctx)
{
    struct front_call *fc = ctx;
    struct err e = ERR_INIT;
    int r = identity_ask_key(fc->c.s3->identity, fc->unknown_key, TIMEOUT_NS, &e);
    strangers_asked(fc->f->strangers, fc->unknown_key, r != -ENOENT, time_mono_ns());
    if (r == 0 || r == -ENOENT) { /* the look-ups answer it now */
        loop_post(http_req_loop(fc->req), again, fc);
        return;
    }
    log_warn_rl("key.not_asked", KV_ERR(&e));
    err_clear(&e);
    fail(&e, r, "ServiceUnavailable", "%s", "");
    front_fail(fc, &e); /* ends the pause */
}

bool front_ask_key(struct front_call *fc)
{
    if (!str_is_set(fc->unknown_key) || fc->is_asked || !fc->c.s3->identity) {
        return false;
    }
    struct str address = front_address(&fc->c);
    switch (strangers_may_ask(fc->f->strangers, fc->unknown_key,
                              str_is_set(address) ? address : STR(""), time_mono_ns())) {
    case STRANGERS_UNKNOWN: return false;
    case STRANGERS_ASK:
        fc->is_asked = true;
        http_req_pause(fc->req);
        if (pool_submit(fc->c.s3->pool, ask_job, NULL, NULL, fc) == 0) {
            return true;
        }
        strangers_asked(fc->f->strangers, fc->unknown_key, true, time_mono_ns());
        break;
    case STRANGERS_LATER: break;
    }
    struct err e = ERR_INIT;
    fail(&e, -EAGAIN, "SlowDown", "%s", "");
    front_fail(fc, &e);
    return true;
}
