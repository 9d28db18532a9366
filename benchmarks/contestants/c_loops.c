/* Steps on periodic grids, second order in space: what a careful C programmer writes in an hour. The coefficients carry
   the time step; the last axis is contiguous. */

#define AT(i, j) (((long)(i) * m + (j)) * l)
#define PARALLEL _Pragma("omp parallel for num_threads(threads) schedule(static)")

/* One forward Euler step of dc/dt = kappa lap(c) - a . grad(c). */
void diffuse2(const float *restrict c, float *restrict result, int n, int m, const float *d, const float *a, int threads)
{
    const int l = 1;
    const float dx = d[0], dy = d[1], ax = a[0], ay = a[1];
    PARALLEL
    for (int i = 0; i < n; i++) {
        const float *here = c + AT(i, 0), *above = c + AT(i == n - 1 ? 0 : i + 1, 0);
        const float *below = c + AT(i == 0 ? n - 1 : i - 1, 0);
        float *next = result + AT(i, 0);
#define UPDATE(j, left, right) \
    next[j] = here[j] + dx * (above[j] - 2 * here[j] + below[j]) + dy * (here[right] - 2 * here[j] + here[left]) \
            - ax * (above[j] - below[j]) - ay * (here[right] - here[left])
        UPDATE(0, m - 1, 1);
        for (int j = 1; j < m - 1; j++)
            UPDATE(j, j - 1, j + 1);
        UPDATE(m - 1, m - 2, 0);
#undef UPDATE
    }
}

void diffuse3(const float *restrict c, float *restrict result, int n, int m, int l, const float *d, const float *a,
              int threads)
{
    const float dx = d[0], dy = d[1], dz = d[2], ax = a[0], ay = a[1], az = a[2];
    PARALLEL
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            const float *here = c + AT(i, j);
            const float *above = c + AT(i == n - 1 ? 0 : i + 1, j), *below = c + AT(i == 0 ? n - 1 : i - 1, j);
            const float *after = c + AT(i, j == m - 1 ? 0 : j + 1), *before = c + AT(i, j == 0 ? m - 1 : j - 1);
            float *next = result + AT(i, j);
#define UPDATE(k, left, right) \
    next[k] = here[k] + dx * (above[k] - 2 * here[k] + below[k]) + dy * (after[k] - 2 * here[k] + before[k]) \
            + dz * (here[right] - 2 * here[k] + here[left]) \
            - ax * (above[k] - below[k]) - ay * (after[k] - before[k]) - az * (here[right] - here[left])
            UPDATE(0, l - 1, 1);
            for (int k = 1; k < l - 1; k++)
                UPDATE(k, k - 1, k + 1);
            UPDATE(l - 1, l - 2, 0);
#undef UPDATE
        }
}

/* Leapfrog of du/dt = -grad p on lower faces, dp/dt = -div u at centres: a kick by `kick`/h, then a drift by `drift`/h. */
void wave2(float *restrict p, float *restrict u, float *restrict v, int n, int m, const float *kick, const float *drift,
           int threads)
{
    const int l = 1;
    PARALLEL
    for (int i = 0; i < n; i++) {
        const float *here = p + AT(i, 0), *below = p + AT(i == 0 ? n - 1 : i - 1, 0);
        float *x = u + AT(i, 0), *y = v + AT(i, 0);
        x[0] -= kick[0] * (here[0] - below[0]);
        y[0] -= kick[1] * (here[0] - here[m - 1]);
        for (int j = 1; j < m; j++) {
            x[j] -= kick[0] * (here[j] - below[j]);
            y[j] -= kick[1] * (here[j] - here[j - 1]);
        }
    }
    PARALLEL
    for (int i = 0; i < n; i++) {
        const float *x = u + AT(i, 0), *above = u + AT(i == n - 1 ? 0 : i + 1, 0), *y = v + AT(i, 0);
        float *here = p + AT(i, 0);
        for (int j = 0; j < m - 1; j++)
            here[j] -= drift[0] * (above[j] - x[j]) + drift[1] * (y[j + 1] - y[j]);
        here[m - 1] -= drift[0] * (above[m - 1] - x[m - 1]) + drift[1] * (y[0] - y[m - 1]);
    }
}

void wave3(float *restrict p, float *restrict u, float *restrict v, float *restrict w, int n, int m, int l,
           const float *kick, const float *drift, int threads)
{
    PARALLEL
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            const float *here = p + AT(i, j);
            const float *below = p + AT(i == 0 ? n - 1 : i - 1, j), *before = p + AT(i, j == 0 ? m - 1 : j - 1);
            float *x = u + AT(i, j), *y = v + AT(i, j), *z = w + AT(i, j);
            for (int k = 0; k < l; k++) {
                x[k] -= kick[0] * (here[k] - below[k]);
                y[k] -= kick[1] * (here[k] - before[k]);
            }
            z[0] -= kick[2] * (here[0] - here[l - 1]);
            for (int k = 1; k < l; k++)
                z[k] -= kick[2] * (here[k] - here[k - 1]);
        }
    PARALLEL
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++) {
            const float *x = u + AT(i, j), *y = v + AT(i, j), *z = w + AT(i, j);
            const float *above = u + AT(i == n - 1 ? 0 : i + 1, j), *after = v + AT(i, j == m - 1 ? 0 : j + 1);
            float *here = p + AT(i, j);
#define UPDATE(k, right) \
    here[k] -= drift[0] * (above[k] - x[k]) + drift[1] * (after[k] - y[k]) + drift[2] * (z[right] - z[k])
            for (int k = 0; k < l - 1; k++)
                UPDATE(k, k + 1);
            UPDATE(l - 1, 0);
#undef UPDATE
        }
}

/* What bounds a step that reads and writes every number once. */
void copy(const float *restrict source, float *restrict target, long n, int threads)
{
    PARALLEL
    for (long i = 0; i < n; i++)
        target[i] = source[i];
}
