/* http_link.h — rings: doubly linked lists whose members leave from anywhere.
 * Not here: maps, vectors (base/).
 * Threads:  a ring belongs to one thread.
 * Memory:   links are embedded in their owners, who leave the ring before they go.
 * Errors:   none. */
#pragma once

struct http_link {
    struct http_link *prev, *next;
};

static inline void http_link_init(struct http_link *l)
{
    l->prev = l->next = l;
}
static inline void http_link_add(struct http_link *ring, struct http_link *l)
{
    l->prev = ring->prev;
    l->next = ring;
    ring->prev->next = l;
    ring->prev = l;
}
static inline void http_link_del(struct http_link *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    http_link_init(l);
}
