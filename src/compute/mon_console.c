#include "base/log.h"
#include "compute/mon_int.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

LOG_MODULE("guestmon.console");

void mon_console_connect(struct mon *m)
{
    m->con_fd = mon_connect(m, "console.sock");
    m->next_con_ns = m->now_ns + MON_RECONNECT_NS;
}

void mon_console_read(struct mon *m)
{
    char piece[16384];
    ssize_t n = recv(m->con_fd, piece, sizeof(piece), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        close(m->con_fd);
        m->con_fd = -1;
        m->next_con_ns = m->now_ns + MON_RECONNECT_NS;
        return;
    }
    m->st.console_bytes += (uint64_t)n;
    int r = console_log_write(&m->log, str_n(piece, (size_t)n));
    if ((r < 0) != m->is_log_failed) {
        m->is_log_failed = r < 0;
        log_warn_rl("log.failed",
                    KV_I64("errno", r)); /* also says that it works again: errno 0 */
    }
}

int mon_console_input(struct mon *m, struct str bytes)
{
    if (m->con_fd < 0) {
        return -ENOTCONN;
    }
    ssize_t n = send(m->con_fd, bytes.p, bytes.n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
        return -errno;
    }
    return n == (ssize_t)bytes.n ? 0 : -EAGAIN;
}

/* Keeps the last line that QEMU wrote to its standard error: the reason when it ends by itself.
 * It writes a line in pieces. Of a long line the end is kept: QEMU repeats the option first. */
void mon_stderr_read(struct mon *m)
{
    char piece[1024];
    ssize_t n = read(m->err_fd, piece, sizeof(piece));
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        close(m->err_fd);
        m->err_fd = -1;
        return;
    }
    for (ssize_t i = 0; i < n; i++) {
        char c = piece[i];
        if (c == '\n') {
            m->is_line_over = true;
            log_warn_rl("qemu.said", KV_CSTR("line", m->st.text));
            continue;
        }
        if (m->is_line_over) {
            m->is_line_over = false;
            m->text_n = 0;
        }
        if (m->text_n + 1 >= sizeof(m->st.text)) {
            m->text_n--;
            memmove(m->st.text, m->st.text + 1, m->text_n);
        }
        m->st.text[m->text_n++] = c >= ' ' && c <= '~' ? c : '?';
        m->st.text[m->text_n] = '\0';
    }
}
