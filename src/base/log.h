/* log.h — one line per event, typed values, to standard error (the journal or a file takes it
 * from there).
 * Not here: metrics. Library rooms use log_debug() only; services log what happened, once.
 * Threads:  any; a line is one write(2).
 * Memory:   nothing is kept.
 * Errors:   none. Secrets have no formatter: do not pass them. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stdint.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

struct log_kv {
    const char *key;
    enum { LOG_KV_STR, LOG_KV_U64, LOG_KV_I64 } type;
    struct str s;
    uint64_t u;
    int64_t i;
};

#define KV_STR(k, v)  ((struct log_kv){.key = (k), .type = LOG_KV_STR, .s = (v)})
#define KV_CSTR(k, v) KV_STR(k, str_c(v))
#define KV_U64(k, v)  ((struct log_kv){.key = (k), .type = LOG_KV_U64, .u = (uint64_t)(v)})
#define KV_I64(k, v)  ((struct log_kv){.key = (k), .type = LOG_KV_I64, .i = (int64_t)(v)})
#define KV_ERR(e)     KV_STR("error", str_c((e)->msg)), KV_CSTR("code", (e)->name)

/* State of one call site's rate limit: 10 lines, then one a second with a count of those
 * dropped. */
struct log_rl {
    uint64_t window_ns;
    uint32_t n, n_dropped;
};

#define LOG_MODULE(name) static const char *const log_module_ UNUSED = (name)

void log_init(const char *service, enum log_level level); /* before threads start */
void log_set_level(enum log_level level);                 /* at run time, any thread */
bool log_is_on(enum log_level level);
/* The request id that lines of this thread carry; borrowed until replaced, STR_NONE to end. */
void log_set_request(struct str id);

void log_write(enum log_level level, const char *module, const char *event,
               const struct log_kv *kv, size_t n_kv);
bool log_rl_take(struct log_rl *rl, uint32_t *ret_dropped);

#define LOG_AT_(level, event, ...)                                             \
    do {                                                                       \
        if (log_is_on(level)) {                                                \
            const struct log_kv log_kv_[] = {__VA_ARGS__};                     \
            log_write(level, log_module_, event, log_kv_, ARRAY_LEN(log_kv_)); \
        }                                                                      \
    } while (0)
#define log_error(event, ...) LOG_AT_(LOG_LEVEL_ERROR, event, __VA_ARGS__)
#define log_warn(event, ...)  LOG_AT_(LOG_LEVEL_WARN, event, __VA_ARGS__)
#define log_info(event, ...)  LOG_AT_(LOG_LEVEL_INFO, event, __VA_ARGS__)
#define log_debug(event, ...) LOG_AT_(LOG_LEVEL_DEBUG, event, __VA_ARGS__)

/* Rate-limited: mandatory on every path that a client or a guest can trigger. */
#define LOG_RL_AT_(level, event, ...)                                                       \
    do {                                                                                    \
        static struct log_rl log_rl_;                                                       \
        uint32_t log_dropped_ = 0;                                                          \
        if (log_is_on(level) && log_rl_take(&log_rl_, &log_dropped_)) {                     \
            const struct log_kv log_kv_[] = {__VA_ARGS__, KV_U64("dropped", log_dropped_)}; \
            log_write(level, log_module_, event, log_kv_, ARRAY_LEN(log_kv_));              \
        }                                                                                   \
    } while (0)
#define log_warn_rl(event, ...) LOG_RL_AT_(LOG_LEVEL_WARN, event, __VA_ARGS__)
#define log_info_rl(event, ...) LOG_RL_AT_(LOG_LEVEL_INFO, event, __VA_ARGS__)
