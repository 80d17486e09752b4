// Functions with names that only a compiler understands.
#include <string>

namespace geometry {

template <typename T> class Point {
  public:
    explicit Point(T x) : x(x) {}
    T doubled(const std::string &) const { return x * 2; }

  private:
    T x;
};

} // namespace geometry

int main()
{
    const geometry::Point<int> point(4);
    return point.doubled("x") - 8;
}
