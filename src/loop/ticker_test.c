#include "loop/ticker.h"

#include "base/test.h"
#include "base/time.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

#define NEVER_NS (3600 * NS_PER_S)

struct seen {
    atomic_int n;
    sem_t turned, gate;
    atomic_bool is_gated;
};

static void seen_init(struct seen *s)
{
    *s = (struct seen){0};
    sem_init(&s->turned, 0, 0);
    sem_init(&s->gate, 0, 0);
}

static void turn(void *ctx)
{
    struct seen *s = ctx;
    atomic_fetch_add(&s->n, 1);
    sem_post(&s->turned);
    if (atomic_load(&s->is_gated)) {
        sem_wait(&s->gate);
    }
}

static bool turned_within(struct seen *s, uint64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    ns += (uint64_t)until.tv_nsec;
    until.tv_sec += (time_t)(ns / NS_PER_S);
    until.tv_nsec = (long)(ns % NS_PER_S);
    return sem_timedwait(&s->turned, &until) == 0;
}

static void the_first_turn_is_at_once_and_the_next_when_it_is_poked(void **state)
{
    struct seen s;
    seen_init(&s);
    struct ticker *t = ticker_start(turn, &s, NEVER_NS);
    assert_true(turned_within(&s, 10 * NS_PER_S));
    assert_false(turned_within(&s, 50 * NS_PER_MS));
    for (int i = 0; i < 3; i++) {
        ticker_poke(t);
        assert_true(turned_within(&s, 10 * NS_PER_S));
    }
    assert_false(turned_within(&s, 50 * NS_PER_MS));
    ticker_stop(t);
    assert_int_equal(atomic_load(&s.n), 4);
}

static void turns_come_by_themselves(void **state)
{
    struct seen s;
    seen_init(&s);
    uint64_t begin = time_mono_ns();
    struct ticker *t = ticker_start(turn, &s, 20 * NS_PER_MS);
    for (int i = 0; i < 6; i++) {
        assert_true(turned_within(&s, 10 * NS_PER_S));
    }
    assert_true(time_mono_ns() - begin >= 5 * 20 * NS_PER_MS); /* never early */
    ticker_stop(t);
}

/* Many pokes during one turn are one more turn, and none is lost. */
static void a_poke_during_a_turn_is_another_turn(void **state)
{
    struct seen s;
    seen_init(&s);
    atomic_store(&s.is_gated, true);
    struct ticker *t = ticker_start(turn, &s, NEVER_NS);
    assert_true(turned_within(&s, 10 * NS_PER_S));
    for (int i = 0; i < 5; i++) {
        ticker_poke(t);
    }
    atomic_store(&s.is_gated, false);
    sem_post(&s.gate);
    assert_true(turned_within(&s, 10 * NS_PER_S));
    assert_false(turned_within(&s, 50 * NS_PER_MS));
    ticker_stop(t);
    assert_int_equal(atomic_load(&s.n), 2);
}

static void no_turn_after_stop(void **state)
{
    for (int i = 0; i < 200; i++) { /* stop and the next turn race */
        struct seen s;
        seen_init(&s);
        struct ticker *t = ticker_start(turn, &s, 1);
        ticker_stop(t);
        int n = atomic_load(&s.n);
        assert_true(n >= 1);
        sem_destroy(&s.turned);
    }
    ticker_stop(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_turn_is_at_once_and_the_next_when_it_is_poked),
        cmocka_unit_test(turns_come_by_themselves),
        cmocka_unit_test(a_poke_during_a_turn_is_another_turn),
        cmocka_unit_test(no_turn_after_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
