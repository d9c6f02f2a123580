"""Publishing inside Django's atomic(): the model's row and the message are committed together.

A whole Django project in one file, for the example's sake. In yours, only `place` is new.
Run it: python django_publish.py
"""

import asyncio

import django
from django.conf import settings

settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "django.db"}},
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    USE_TZ=True,
)
django.setup()

from django.db import connection, models, transaction  # noqa: E402

from holdfast import Holdfast  # noqa: E402

app = Holdfast("sqlite:///django.db")


class Order(models.Model):
    customer = models.CharField(max_length=100)

    class Meta:
        app_label = "shop"


welcomed: asyncio.Queue[str] = asyncio.Queue()


@app.handler("order.placed")
async def welcome(order: dict) -> None:
    print("welcome,", order["customer"])
    await welcomed.put(order["customer"])


def place(customer: str) -> None:
    with transaction.atomic():
        order = Order.objects.create(customer=customer)
        body = {"id": order.pk, "customer": customer}
        app.publish("order.placed", body, stream=f"customer-{customer}", on=connection)


async def handle(count: int) -> list[str]:
    async with app.running():
        return [await welcomed.get() for _ in range(count)]


if __name__ == "__main__":
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    place("Ada")
    place("Grace")
    connection.close()
    assert sorted(asyncio.run(handle(2))) == ["Ada", "Grace"]
