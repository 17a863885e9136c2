#include "base/log.h"
#include "base/time.h"
#include "compute/mon_int.h"
#include "compute/qemu_args.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

LOG_MODULE("guestmon.qmp");

int mon_qmp_send(struct mon *m, enum mon_cmd cmd, unsigned slot, const char *name,
                 struct str args)
{
    if (m->qmp_fd < 0 || m->n_pending == MON_MAX_PENDING) {
        return -ENOTCONN;
    }
    AUTO_BUF line;
    buf_init(&line, 8192);
    uint64_t id = ++m->next_id;
    qmp_command(&line, name, id, args);
    if (!buf_ok(&line)) {
        return -E2BIG;
    }
    /* A command is far smaller than a socket's buffer: when it does not fit, QEMU has not read
     * for long. */
    ssize_t n = send(m->qmp_fd, line.p, line.n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n != (ssize_t)line.n) {
        mon_qmp_drop(m);
        return -EPIPE;
    }
    m->pending[m->n_pending++] = (struct mon_pending){.id = id, .cmd = cmd, .slot = slot};
    return 0;
}

void mon_qmp_drop(struct mon *m)
{
    if (m->qmp_fd < 0) {
        return;
    }
    close(m->qmp_fd);
    m->qmp_fd = -1;
    m->is_qmp_ready = false;
    m->n_pending = 0;
    m->next_qmp_ns = m->now_ns + MON_RECONNECT_NS;
    qmp_free(m->qmp);
    m->qmp = NULL;
    mon_job_abort(m, -EIO, "QEMU closed its control socket");
}

void mon_qmp_connect(struct mon *m)
{
    int fd = mon_connect(m, "qmp.sock");
    m->next_qmp_ns = m->now_ns + MON_RECONNECT_NS;
    if (fd < 0) {
        return;
    }
    m->qmp_fd = fd;
    m->qmp = qmp_new(QMP_MAX_LINE);
}

static void set_phase(struct mon *m, enum gm_phase phase)
{
    if (m->st.phase < (uint8_t)phase) {
        m->st.phase = (uint8_t)phase;
        m->is_state_new = true;
    }
}

void mon_quit(struct mon *m)
{
    m->is_quitting = true;
    set_phase(m, GM_PHASE_ENDING);
    if (!m->kill_ns) {
        m->kill_ns = m->now_ns + MON_KILL_NS;
    }
    if (mon_qmp_send(m, MON_CMD_IGNORE, 0, "quit", STR_NONE) < 0) {
        m->kill_ns = m->now_ns;
    }
}

/* The guest switched itself off. QEMU stands still until we say how it goes on. */
static void on_guest_off(struct mon *m)
{
    if (m->is_quitting) {
        return;
    }
    if (m->is_reboot_asked) {
        m->is_reboot_asked = false;
        m->is_cont_due = true;
        m->st.n_reboots_done++;
        m->is_state_new = true;
        (void)mon_qmp_send(m, MON_CMD_IGNORE, 0, "system_reset", STR_NONE);
        return;
    }
    m->is_guest_off = true;
    mon_quit(m);
}

static void on_reset(struct mon *m)
{
    m->st.n_resets++;
    m->st.is_driver_ok = 0;
    m->st.is_panicked = 0;
    m->is_state_new = true;
    m->next_poll_ns = m->now_ns + MON_POLL_EARLY_NS;
    if (m->is_reboot_asked) { /* the guest chose to restart by itself when the button was
                                 pressed: as good */
        m->is_reboot_asked = false;
        m->st.n_reboots_done++;
    }
    if (m->is_cont_due) {
        m->is_cont_due = false;
        (void)mon_qmp_send(m, MON_CMD_IGNORE, 0, "cont", STR_NONE);
    }
}

/* "disk7" -> 7, or -1 */
static int slot_of(struct str device)
{
    if (!str_has_prefixc(device, "disk") || device.n < 5 || device.n > 6) {
        return -1;
    }
    int slot = 0;
    for (size_t i = 4; i < device.n; i++) {
        if (device.p[i] < '0' || device.p[i] > '9') {
            return -1;
        }
        slot = slot * 10 + (device.p[i] - '0');
    }
    return slot < (int)GM_N_DISKS ? slot : -1;
}

static void on_event(struct mon *m, const struct qmp_msg *msg)
{
    int slot = slot_of(json_get_str(msg->data, "device"));
    if (str_eqc(msg->name, "SHUTDOWN")) {
        /* Also when the host asked ("quit"): then is_quitting is set and nothing follows. A
         * signal from outside (the host goes down) is no wish of the guest's: QEMU is ended, and
         * its end is told as what it was. */
        if (str_eqc(json_get_str(msg->data, "reason"), "host-signal")) {
            m->is_signalled = !m->is_quitting;
            mon_quit(m);
        } else {
            on_guest_off(m);
        }
    } else if (str_eqc(msg->name, "RESET")) {
        on_reset(m);
    } else if (str_eqc(msg->name, "RESUME")) {
        set_phase(m, GM_PHASE_RUNNING);
        m->is_state_new = true;
    } else if (str_eqc(msg->name, "GUEST_PANICKED")) {
        m->st.is_panicked = 1;
        m->is_state_new = true;
    } else if (str_eqc(msg->name, "DEVICE_DELETED") && slot >= 0) {
        m->dirty_slots |= 1u << slot;
    } else if (str_eqc(msg->name, "DEVICE_UNPLUG_GUEST_ERROR") && slot >= 0) {
        m->st.is_busy[slot] = 1;
        if (m->st.slot[slot] == GM_SLOT_LEAVING) {
            m->st.slot[slot] = GM_SLOT_USED;
        }
        m->is_state_new = true;
    }
}

static void on_status(struct mon *m, const struct json *data)
{
    struct str s = json_get_str(data, "status");
    if (str_eqc(s, "running")) {
        set_phase(m, GM_PHASE_RUNNING);
    } else if (str_eqc(s, "shutdown")) {
        on_guest_off(m);
    } else if (!m->is_quitting && !m->is_cont_due) {
        /* "prelaunch" after the start, "paused" when a reset was cut in the middle. */
        (void)mon_qmp_send(m, MON_CMD_IGNORE, 0, "cont", STR_NONE);
    }
}

static void on_devices(struct mon *m, const struct json *data)
{
    m->there = 0;
    for (size_t i = 0; i < json_len(data); i++) {
        int slot = slot_of(json_get_str(json_at(data, i), "name"));
        if (slot >= 0) {
            m->there |= 1u << slot;
        }
    }
    for (unsigned i = 0; i < GM_N_DISKS; i++) {
        if (!(m->there & 1u << i) && m->st.slot[i] != GM_SLOT_EMPTY &&
            m->job.op == MON_JOB_NONE) {
            m->dirty_slots |= 1u << i; /* it left while nobody listened */
        }
    }
}

/* Connections are named after the volume that they are of: what a monitor before us has plugged,
 * and what a device left behind that has gone. */
static void on_labels(struct mon *m, const struct json *data, const char *key)
{
    for (size_t i = 0; i < json_len(data); i++) {
        unsigned slot = 0;
        char letter = 0, id[GM_NAME_MAX];
        if (!qemu_disk_of_label(json_get_str(json_at(data, i), key), &letter, &slot, id) ||
            m->st.slot[slot] != GM_SLOT_EMPTY || m->job.op != MON_JOB_NONE) {
            continue;
        }
        m->letter[slot] = letter;
        memset(m->st.name[slot], 0, GM_NAME_MAX);
        (void)snprintf(m->st.name[slot], GM_NAME_MAX, "%s", id);
        if (m->there & 1u << slot) {
            m->st.slot[slot] = GM_SLOT_USED;
        } else {
            m->dirty_slots |= 1u << slot;
        }
        m->is_state_new = true;
    }
}

static void on_virtio(struct mon *m, const struct json *data)
{
    AUTO_BUF text;
    buf_init(&text, 16384);
    json_dump(json_get(data, "status"), &text);
    uint8_t is_ok = buf_ok(&text) && str_find_str(buf_str(&text), STR("DRIVER_OK")) >= 0;
    if (is_ok != m->st.is_driver_ok) {
        m->st.is_driver_ok = is_ok;
        m->is_state_new = true;
    }
}

static void on_answer(struct mon *m, const struct mon_pending *p, const struct qmp_msg *msg)
{
    bool is_ok = msg->type == QMP_RETURN;
    switch (p->cmd) {
    case MON_CMD_CAPABILITIES:
        if (!is_ok) {
            mon_qmp_drop(m);
            return;
        }
        (void)mon_qmp_send(m, MON_CMD_DEVICES, 0, "qom-list",
                           STR("{\"path\":\"/machine/peripheral\"}"));
        break;
    case MON_CMD_STATUS:
        if (!m->is_qmp_ready) { /* the first one: what was asked before it has been answered */
            m->is_qmp_ready = true;
            m->is_state_new = true;
            m->next_poll_ns = m->now_ns + MON_POLL_EARLY_NS;
        }
        if (is_ok) {
            on_status(m, msg->data);
        }
        break;
    case MON_CMD_DEVICES:
        if (is_ok) {
            on_devices(m, msg->data);
        }
        (void)mon_qmp_send(m, MON_CMD_CHARDEVS, 0, "query-chardev", STR_NONE);
        (void)mon_qmp_send(m, MON_CMD_NODES, 0, "query-named-block-nodes",
                           STR("{\"flat\":true}"));
        (void)mon_qmp_send(m, MON_CMD_STATUS, 0, "query-status", STR_NONE);
        break;
    case MON_CMD_CHARDEVS:
        if (is_ok) {
            on_labels(m, msg->data, "label");
        }
        break;
    case MON_CMD_NODES:
        if (is_ok) {
            on_labels(m, msg->data, "node-name");
        }
        break;
    case MON_CMD_VIRTIO:
        if (is_ok) {
            on_virtio(m, msg->data);
        } else if (str_eqc(msg->name, "CommandNotFound")) {
            m->has_no_virtio_query = true;
        }
        break;
    case MON_CMD_JOB: mon_job_answer(m, is_ok, msg->desc); break;
    case MON_CMD_IGNORE:
        if (!is_ok) {
            log_warn_rl("command.refused", KV_STR("error", msg->desc));
        }
        break;
    }
}

static int on_message(void *ctx, const struct qmp_msg *msg)
{
    struct mon *m = ctx;
    m->last_answer_ns = m->now_ns;
    if (!m->st.is_qmp_ok) {
        m->st.is_qmp_ok = 1;
        m->is_state_new = true;
    }
    if (msg->type == QMP_GREETING) {
        int r = mon_qmp_send(m, MON_CMD_CAPABILITIES, 0, "qmp_capabilities", STR_NONE);
        return r < 0 ? -ECANCELED : 0;
    }
    if (msg->type == QMP_EVENT) {
        on_event(m, msg);
        return m->qmp_fd < 0 ? -ECANCELED : 0;
    }
    for (size_t i = 0; i < m->n_pending; i++) {
        if (m->pending[i].id == msg->id) {
            struct mon_pending p = m->pending[i];
            memmove(&m->pending[i], &m->pending[i + 1], (m->n_pending - i - 1) * sizeof(p));
            m->n_pending--;
            on_answer(m, &p, msg);
            return m->qmp_fd < 0 ? -ECANCELED : 0;
        }
    }
    return -EPROTO; /* an answer to nothing we asked */
}

void mon_qmp_read(struct mon *m)
{
    char piece[16384];
    ssize_t n = recv(m->qmp_fd, piece, sizeof(piece), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0) {
        mon_qmp_drop(m);
        return;
    }
    /* A call-back may drop the connection, and the parser with it: it is taken out for the
     * call. */
    struct qmp *q = steal(&m->qmp);
    int fd = m->qmp_fd;
    struct err err = ERR_INIT;
    int r = qmp_feed(q, str_n(piece, (size_t)n), on_message, m, &err);
    if (m->qmp_fd != fd) {
        qmp_free(q);
        return;
    }
    m->qmp = q;
    if (r < 0) {
        log_warn_rl("stream.bad", KV_CSTR("error", err.msg));
        mon_qmp_drop(m);
        return;
    }
    mon_job_idle(m);
}

void mon_qmp_tick(struct mon *m)
{
    if (m->st.phase == GM_PHASE_EXITED) {
        return;
    }
    if (m->qmp_fd < 0) {
        if (m->now_ns >= m->next_qmp_ns) {
            mon_qmp_connect(m);
        }
    } else if (m->is_qmp_ready && m->now_ns >= m->next_poll_ns) {
        m->next_poll_ns = m->now_ns + (m->st.is_driver_ok ? MON_POLL_NS : MON_POLL_EARLY_NS);
        if (m->n_pending < MON_MAX_PENDING / 2) {
            (void)mon_qmp_send(m, MON_CMD_STATUS, 0, "query-status", STR_NONE);
            if (!m->has_no_virtio_query) {
                (void)mon_qmp_send(
                    m, MON_CMD_VIRTIO, 0, "x-query-virtio-status",
                    STR("{\"path\":\"/machine/peripheral/nic0/virtio-backend\"}"));
            }
        }
    }
    if (m->st.is_qmp_ok && m->now_ns > m->last_answer_ns + GM_QMP_LATE_NS) {
        m->st.is_qmp_ok = 0;
        m->is_state_new = true;
    }
    /* QEMU older than 7.2 cannot tell whether a driver runs: output on the serial port is the
     * next best sign of life. */
    if (m->has_no_virtio_query && m->st.console_bytes && !m->st.is_driver_ok) {
        m->st.is_driver_ok = 1;
        m->is_state_new = true;
    }
    if (m->kill_ns && m->now_ns >= m->kill_ns) {
        m->kill_ns = m->now_ns + MON_KILL_NS;
        mon_kill(m);
    }
}
