#include "base/log.h"

#include "base/buf.h"
#include "base/time.h"

#include <stdatomic.h>

#define LINE_MAX_SIZE 4096u
#define RL_BURST      10u

static const char *service_name = "spx";
static atomic_int level_now = LOG_LEVEL_INFO;
static _Thread_local struct str request_id;

static const char *const level_words[] = {"error", "warn", "info", "debug"};

void log_init(const char *service, enum log_level level)
{
    service_name = service;
    atomic_store(&level_now, (int)level);
}

void log_set_level(enum log_level level)
{
    atomic_store(&level_now, (int)level);
}

bool log_is_on(enum log_level level)
{
    return (int)level <= atomic_load_explicit(&level_now, memory_order_relaxed);
}

void log_set_request(struct str id)
{
    request_id = id;
}

/* logfmt: a value is quoted when it has a space, a quote, '=' or a control byte. */
static void add_value(struct buf *b, struct str v)
{
    bool is_plain = v.n > 0;
    for (size_t i = 0; i < v.n && is_plain; i++) {
        unsigned char c = (unsigned char)v.p[i];
        is_plain = c > ' ' && c != '"' && c != '=' && c != 0x7f;
    }
    if (is_plain) {
        buf_add(b, v);
        return;
    }
    buf_add_char(b, '"');
    for (size_t i = 0; i < v.n; i++) {
        unsigned char c = (unsigned char)v.p[i];
        if (c == '"' || c == '\\') {
            buf_fmt(b, "\\%c", c);
        } else if (c < ' ' || c == 0x7f) {
            buf_fmt(b, "\\x%02x", c);
        } else {
            buf_add_char(b, (char)c);
        }
    }
    buf_add_char(b, '"');
}

void log_write(enum log_level level, const char *module, const char *event,
               const struct log_kv *kv, size_t n_kv)
{
    AUTO_BUF b;
    buf_init(&b, LINE_MAX_SIZE);
    char ts[TIME_ISO_SIZE];
    buf_fmt(&b, "%s %-5s %s %s %s", time_iso_ms(time_wall_ns(), ts), level_words[level],
            service_name, module, event);
    if (str_is_set(request_id)) {
        buf_addc(&b, " req=");
        add_value(&b, request_id);
    }
    for (size_t i = 0; i < n_kv; i++) {
        size_t before = b.n;
        buf_fmt(&b, " %s=", kv[i].key);
        switch (kv[i].type) {
        case LOG_KV_STR: add_value(&b, kv[i].s); break;
        case LOG_KV_U64: buf_fmt(&b, "%llu", (unsigned long long)kv[i].u); break;
        case LOG_KV_I64: buf_fmt(&b, "%lld", (long long)kv[i].i); break;
        }
        if (!buf_ok(&b)) {
            b.is_failed = false;
            b.n = before; /* the value that does not fit is left out */
        }
    }
    buf_add_char(&b, '\n');
    ssize_t n = write(STDERR_FILENO, b.p, b.n);
    (void)n; /* nowhere to report it */
}

/* The counters may be raced by threads: a line more or less is no harm, and all accesses are
 * atomic. */
bool log_rl_take(struct log_rl *rl, uint32_t *ret_dropped)
{
    uint64_t now = time_mono_ns();
    uint64_t start = __atomic_load_n(&rl->window_ns, __ATOMIC_RELAXED);
    if (start == 0 || now - start > NS_PER_S) {
        __atomic_store_n(&rl->window_ns, now, __ATOMIC_RELAXED);
        uint32_t n = __atomic_exchange_n(&rl->n, 1, __ATOMIC_RELAXED);
        *ret_dropped =
            n > RL_BURST ? __atomic_exchange_n(&rl->n_dropped, 0, __ATOMIC_RELAXED) : 0;
        return true;
    }
    if (__atomic_fetch_add(&rl->n, 1, __ATOMIC_RELAXED) < RL_BURST) {
        *ret_dropped = 0;
        return true;
    }
    __atomic_fetch_add(&rl->n_dropped, 1, __ATOMIC_RELAXED);
    return false;
}
