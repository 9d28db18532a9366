/* One forward Euler step of dc/dt = kappa lap(c) - a . grad(c) on a periodic n x m grid, central second order:
   what a careful C programmer writes in ten minutes. The coefficients carry the time step. */

#define UPDATE(j, left, right) \
    next[j] = here[j] + dx * (above[j] - 2 * here[j] + below[j]) + dy * (here[right] - 2 * here[j] + here[left]) \
            - ax * (above[j] - below[j]) - ay * (here[right] - here[left])

void step(const float *restrict c, float *restrict result, int n, int m, float dx, float dy, float ax, float ay)
{
    for (int i = 0; i < n; i++) {
        const float *here = c + (long)i * m;
        const float *above = c + (long)(i == n - 1 ? 0 : i + 1) * m;
        const float *below = c + (long)(i == 0 ? n - 1 : i - 1) * m;
        float *next = result + (long)i * m;
        UPDATE(0, m - 1, 1);
        for (int j = 1; j < m - 1; j++)
            UPDATE(j, j - 1, j + 1);
        UPDATE(m - 1, m - 2, 0);
    }
}
