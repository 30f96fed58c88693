// exp, logistic and tanh over 16 lanes, the same polynomials on every target.
//
// exp: x = n·ln2 + r with |r| <= ln2/2, then 2^n · (1 + r + r²·P(r)); P is our own minimax fit, relative error 3e-9
// before rounding, within 2 ulp after it. Arguments are clamped to the range whose result is a normal float.
#pragma once

namespace paceline::kernels {

template <class S>
inline typename S::Vec exp(typename S::Vec x) {
  using Vec = typename S::Vec;
  x = S::min(S::max(x, S::set1(-87.0f)), S::set1(88.0f));
  const Vec n = S::round(x * S::set1(1.44269504f));
  Vec r = S::fma(n, S::set1(-0.693359375f), x);  // ln2's leading bits: n times them is exact
  r = S::fma(n, S::set1(2.12194440e-4f), r);
  Vec p = S::set1(0.00138145379f);
  p = S::fma(p, r, S::set1(0.00836874532f));
  p = S::fma(p, r, S::set1(0.0416683908f));
  p = S::fma(p, r, S::set1(0.166665204f));
  p = S::fma(p, r, S::set1(0.499999934f));
  p = S::fma(p, r * r, r) + S::set1(1.0f);
  return S::scale_by_power(p, n);
}

// 2^x for x <= 127, at least 2^-126: n = the nearest integer to x, then 2^n · (1 + r·P(r)) with |r| <= 1/2. P is our
// own minimax fit, relative error 1.1e-7 before rounding. Exact for integers.
template <class S>
inline typename S::Vec exp2(typename S::Vec x) {
  using Vec = typename S::Vec;
  x = S::max(x, S::set1(-126.0f));
  const Vec n = S::round(x);
  const Vec r = x - n;
  Vec p = S::set1(0.00132647273f);
  p = S::fma(p, r, S::set1(0.00967151299f));
  p = S::fma(p, r, S::set1(0.0555073358f));
  p = S::fma(p, r, S::set1(0.240222424f));
  p = S::fma(p, r, S::set1(0.693147004f));
  return S::scale_by_power(S::fma(p, r, S::set1(1.0f)), n);
}

// 1 / (1 + e^-x)
template <class S>
inline typename S::Vec logistic(typename S::Vec x) {
  const auto one = S::set1(1.0f);
  return one / (one + exp<S>(S::set1(0.0f) - x));
}

// Small |x|: odd polynomial (the other form cancels there). Else 1 - 2 / (e^2|x| + 1) with x's sign.
template <class S>
inline typename S::Vec tanh(typename S::Vec x) {
  using Vec = typename S::Vec;
  const Vec magnitude = S::copy_sign(x, S::set1(0.0f));
  const Vec square = x * x;
  Vec p = S::set1(-0.00571703655f);
  p = S::fma(p, square, S::set1(0.020650579f));
  p = S::fma(p, square, S::set1(-0.0537434953f));
  p = S::fma(p, square, S::set1(0.133314912f));
  p = S::fma(p, square, S::set1(-0.333332839f));
  const Vec small = S::fma(p * square, x, x);
  const Vec one = S::set1(1.0f);
  const Vec large = one - S::set1(2.0f) / (exp<S>(magnitude + magnitude) + one);
  return S::select_ge(magnitude, S::set1(0.625f), S::copy_sign(large, x), small);
}

}  // namespace paceline::kernels
